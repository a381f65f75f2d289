#include "report/page.hpp"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "ir/program.hpp"

namespace switchyard::report {
namespace {

TEST(Kind, of_a_task_follows_from_its_name_in_the_program) {
  const auto kind = [](ir::Task task, bool communication = false) { return kind_of(ir::name_of(task), communication); };
  const auto run = [](Pass pass) {
    return ir::Task{.what = ir::Run{.replica = 1, .stage = 2, .micro_batch = 3, .pass = pass}, .phase = 0};
  };
  EXPECT_EQ(kind(run(Pass::F)), Kind::forward);
  EXPECT_EQ(kind(run(Pass::F), true), Kind::collective);
  EXPECT_EQ(kind(run(Pass::W)), Kind::weight_gradient);
  for (const Pass pass : {Pass::B, Pass::BW}) EXPECT_EQ(kind(run(pass)), Kind::backward);
  EXPECT_EQ(kind({.what = ir::Send{.pass = Pass::BW}}, true), Kind::gradient_send);
  EXPECT_EQ(kind({.what = ir::Send{}}, true), Kind::activation_send);
  for (const auto& [what, expected] : std::vector<std::pair<ir::AnyTask, Kind>>{{ir::Move{}, Kind::move},
                                                                                {ir::Allocate{}, Kind::move},
                                                                                {ir::Reduce{}, Kind::reduce},
                                                                                {ir::Broadcast{}, Kind::reduce},
                                                                                {ir::Norm{}, Kind::norm},
                                                                                {ir::Update{}, Kind::update},
                                                                                {ir::ZeroFill{}, Kind::other}}) {
    const ir::Task task{.what = what};
    EXPECT_EQ(kind(task), expected) << ir::name_of(task);
  }
  EXPECT_EQ(kind_of("", false), Kind::other);
}

TEST(Ranks, are_reported_as_ranges) {
  EXPECT_EQ(ranks_text({0, 1, 2, 3, 8}), "0..3, 8");
  EXPECT_EQ(ranks_text({4, 5, 7}), "4, 5, 7");
  EXPECT_EQ(ranks_text({}), "");
}

TEST(Page, as_json_has_every_figure_and_null_for_what_is_absent) {
  report::Run run{.name = "a"};
  run.steps = Steps{{1, 2}, {{"loss", {2.5, std::nullopt}}}};
  run.timelines.push_back({.step = 2,
                           .predicted_seconds = 0.5,
                           .names = {"norm"},
                           .tracks = {{{0, 1}, 1, false, {{0.1, 0.25, Kind::norm, 0}}}}});
  run.memory = Memory{
      1000, "run.memory_budget", {{{0}, {0.0, 0.5}, {{1, 2, 3, 4, 5, 6, 7, 8}, {8, 7, 6, 5, 4, 3, 2, 1}}}}, {36}, {35}};
  run.buckets.push_back(
      {.strategy = "1,2,2", .max_length = 64, .documents = 2, .tokens = 90, .computed = 100, .measured_seconds = 0.25});
  const batch::RingPlace place{.pieces = {{0, 2, 4, 1}, {-1, 0, 1, 1}},
                               .tokens = 5,
                               .padding = 1,
                               .key_bytes = 48,
                               .keys = {2, 1},
                               .pairs = 18,
                               .share = 1.5};
  batch::PhasePlaces phase{.max_length = 64, .documents = 1, .ring = true, .slowest = 1.25, .bound = 1.125};
  phase.replicas.push_back(
      {.documents = 1, .tokens = 9, .padding = 1, .pairs = 36, .share = 1.25, .micro_batches = {{place}}});
  run.documents = Documents{.step = 2, .lengths = {8}, .strategies = {"ring=2"}, .phases = {phase}};
  run.links.push_back({"between stages", 10, 20});
  run.matrices.push_back({.title = "m", .size = 2, .cells = {{0, 1, 77}}, .intra = 77, .inter_bound = 5});
  run.candidates.push_back({.name = "4,1,1", .seconds = 1.5, .peak = 99, .fits = false});
  run.shares.push_back({{0, 1, 2}, 0.5, 0.1, 0.2, 0.2});
  const nlohmann::ordered_json json = to_json(Page{"t", {run}}), &r = json["runs"][0];
  EXPECT_EQ(json["kinds"].size(), kKinds);
  EXPECT_EQ(r["steps"]["step"].dump(), "[1,2]");
  EXPECT_EQ(r["steps"]["loss"].dump(), "[2.5,null]");
  const auto& timeline = r["timelines"][0];
  EXPECT_EQ(timeline["tracks"][0].dump(), R"({"ranks":"0, 1","shown":1,"count":2,"measured":false})");
  EXPECT_EQ(timeline["spans"].dump(), R"({"track":[0],"begin":[0.1],"end":[0.25],"kind":[8],"name":[0],"busy":[1.0]})");
  EXPECT_EQ(timeline["predicted_seconds"], 0.5);
  EXPECT_TRUE(timeline["measured_seconds"].is_null());
  EXPECT_EQ(r["memory"]["curves"][0]["bytes"][7].dump(), "[8,1]");
  EXPECT_EQ(r["memory"]["budget"], 1000);
  EXPECT_NEAR(r["buckets"][0]["padding_share"].get<double>(), 0.1, 1e-12);
  EXPECT_TRUE(r["buckets"][0]["predicted_seconds"].is_null());
  EXPECT_EQ(r["documents"].dump(),
            R"({"step":2,"lengths":[8],"phases":[{"strategy":"ring=2","max_length":64,"documents":1,"ring":true,)"
            R"("slowest":1.25,"bound":1.125,"replicas":[{"documents":1,"tokens":9,"padding":1,"pairs":36.0,)"
            R"("share":1.25,)"
            R"("micro_batches":[[{"pieces":[[0,2,4],[-1,0,1]],"tokens":5,"padding":1,"pairs":18.0,"keys_inside":2,)"
            R"("keys_across":1,"key_bytes":48,"share":1.5}]]}]}]})");
  EXPECT_EQ(r["links"][0].dump(), R"({"what":"between stages","intra":10,"inter":20})");
  EXPECT_EQ(r["matrices"][0]["cells"].dump(), "[[0,1,77]]");
  EXPECT_EQ(r["candidates"][0]["peak"], 99);
  EXPECT_EQ(r["shares"][0]["ranks"], "0..2");
}

}  // namespace
}  // namespace switchyard::report
