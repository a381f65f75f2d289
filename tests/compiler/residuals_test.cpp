#include "compiler/residuals.hpp"

#include <gmock/gmock.h>

#include <algorithm>

#include "compiler/memory.hpp"
#include "compiler/wire.hpp"
#include "small_models.hpp"

namespace switchyard::compiler {
namespace {

using codecs::Codec;
using testing::IsEmpty;

Plans compressed_plans(const std::vector<std::string>& specs, int ranks, const config::Compression& compression,
                       int hosts = 1) {
  const config::ModelConfig model = small_llama();
  config::StrategySettings settings;
  settings.compression = compression;
  std::vector<config::Strategy> strategies;
  for (const std::string& spec : specs)
    strategies.push_back(config::strategy_from_spec(spec, ranks, model.layers, settings));
  return Plans(training_graph(model), strategies, 0, cluster::uniform(hosts, ranks / hosts), switching::Planner::relay);
}

config::Compression top(i64 smallest = 0) { return {.gradients = Codec::top_128, .smallest = {smallest}}; }

layout::Box rows(i64 first, i64 end) { return {2, {first, 0}, {end, 64}}; }

// What each rank sends encoded in a step of every strategy.
template <class Visit>
void each_sent(const Plans& plans, const Visit& visit) {
  const ir::Program program = assemble(level_step(plans, 2), plans, {});
  for (const ir::Task& task : program.tasks)
    if (task.encoding.feedback)
      for (const layout::Msg& m : task.messages)
        if (codec_of(task, m, DType::f32, plans.cluster()) != Codec::none) visit(m);
}

TEST(Residuals, TheBoxOfEachEncodedMessageLiesInOneOfItsSendersAndAllOfItIsSent) {
  for (const std::vector<std::string>& specs : {std::vector<std::string>{"4,1,1"},
                                                {"2,2,1"},
                                                {"dp=4,zero=3"},
                                                {"dp=4,zero=2"},
                                                {"dp=2,depth=2"},
                                                {"1,2,2", "4,1,1"},
                                                {"2,2,1", "1,4,1", "4,1,1"},
                                                {"dp=2,pp=2,zero=3,every=2"}})
    for (const int hosts : {1, 2}) {
      SCOPED_TRACE(specs.front());
      const Plans plans = compressed_plans(specs, 4, top(), hosts);
      int messages = 0;
      each_sent(plans, [&](const layout::Msg& m) {
        i64 elements = 0;
        for (const layout::Box& part : sent_parts(plans.residuals()[static_cast<size_t>(m.src)], m.tensor, m.box))
          elements += part.elements();
        EXPECT_EQ(elements, m.box.elements());
        EXPECT_TRUE(std::ranges::any_of(plans.residuals()[static_cast<size_t>(m.src)], [&](const Residual& residual) {
          return residual.param == m.tensor && residual.box.contains(m.box);
        }));
        ++messages;
      });
      EXPECT_GT(messages, 0);
    }
}

TEST(Residuals, ARankHasOneOfAnElementHoweverManyStrategiesAndMicroBatchesSendIt) {
  const Plans plans = compressed_plans({"2,2,1", "4,1,1", "dp=4,zero=3"}, 4, top(), 2);
  for (const std::vector<Residual>& of_rank : plans.residuals())
    for (const Residual& a : of_rank) {
      i64 sent = 0;
      for (const layout::Box& box : a.sent) sent += box.elements();
      EXPECT_LE(sent, a.box.elements());
      for (const Residual& b : of_rank)
        if (&a != &b && a.param == b.param) {
          EXPECT_TRUE(layout::intersect(a.box, b.box).empty());
        }
    }
}

TEST(Residuals, AreThereForMessagesThatAreEncodedAlone) {
  const auto elements = [](const Plans& plans) {
    i64 sum = 0;
    for (const std::vector<Residual>& of_rank : plans.residuals())
      for (const Residual& residual : of_rank) sum += residual.box.elements();
    return sum;
  };
  const i64 all = elements(compressed_plans({"4,1,1"}, 4, top()));
  // There are four copies of all parameters, and each rank sends the three quarters that it doesn't own.
  i64 parameters = 0;
  const Plans plans = compressed_plans({"4,1,1"}, 4, {});
  for (const ir::Param& param : plans.graph().params()) parameters += param.shape.elements();
  EXPECT_EQ(all, 3 * parameters);
  EXPECT_EQ(elements(plans), 0);
  EXPECT_LT(elements(compressed_plans({"4,1,1"}, 4, top(1 << 12))), all);
  EXPECT_EQ(elements(compressed_plans({"4,1,1"}, 4, top(1 << 30))), 0);
  config::Compression hosts = top();
  hosts.links = config::CompressedLinks::hosts;
  EXPECT_EQ(elements(compressed_plans({"4,1,1"}, 4, hosts)), 0);
  EXPECT_GT(elements(compressed_plans({"4,1,1"}, 4, hosts, 2)), 0);
  config::Compression off = top();
  off.error_feedback = config::ErrorFeedback::off;
  EXPECT_EQ(elements(compressed_plans({"4,1,1"}, 4, off)), 0);
  EXPECT_EQ(elements(compressed_plans({"4,1,1"}, 4, {.gradients = Codec::int8, .smallest = {0}})), 0);
  EXPECT_EQ(
      elements(compressed_plans(
          {"4,1,1"}, 4, {.gradients = Codec::int8, .error_feedback = config::ErrorFeedback::on, .smallest = {0}})),
      all);
}

TEST(Residuals, WhatLiesBetweenMessagesIsNotSent) {
  const std::vector<Residual> residuals = {{.param = 3, .box = rows(0, 10), .sent = {rows(0, 3), rows(6, 10)}},
                                           {.param = 3, .box = rows(12, 14), .sent = {rows(12, 14)}}};
  EXPECT_EQ(sent_parts(residuals, 3, rows(1, 3)), (std::vector<layout::Box>{rows(1, 3)}));
  EXPECT_EQ(sent_parts(residuals, 3, rows(2, 13)), (std::vector<layout::Box>{rows(2, 3), rows(6, 10), rows(12, 13)}));
  EXPECT_TRUE(sent_parts(residuals, 3, rows(3, 6)).empty());
  EXPECT_TRUE(sent_parts(residuals, 2, rows(0, 14)).empty());
}

TEST(Residuals, AreCountedAmongARanksMemoryAndItsCheckpointCopies) {
  const Plans plans = compressed_plans({"2,2,1", "4,1,1"}, 4, top()),
              plain = compressed_plans({"2,2,1", "4,1,1"}, 4, {});
  const batch::StepPlan plan = level_step(plans, 1);
  const std::vector<MemoryPeak> peaks = predict_all(assemble(plan, plans, {}), plan, plans);
  const std::vector<i64> copies = checkpoint_copies(plans), plain_copies = checkpoint_copies(plain);
  for (size_t rank = 0; rank < peaks.size(); ++rank) {
    i64 bytes = 0;
    for (const Residual& residual : plans.residuals()[rank]) bytes += (4 * residual.box.elements() + 63) / 64 * 64;
    EXPECT_GT(bytes, 0);
    EXPECT_EQ(peaks[rank].bytes[static_cast<size_t>(MemoryClass::residuals)], bytes);
    EXPECT_EQ(copies[rank] - plain_copies[rank], bytes);
  }
}

}  // namespace
}  // namespace switchyard::compiler
