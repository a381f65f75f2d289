#include "planner/plan.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>
#include <regex>
#include <span>

#include "../cases.hpp"
#include "base/errors.hpp"
#include "batch/planner.hpp"
#include "small_problems.hpp"

namespace switchyard::planner {
namespace {

using testing::AllOf;
using testing::AnyOf;
using testing::ElementsAre;
using testing::EndsWith;
using testing::HasSubstr;
using testing::Not;
using testing::StartsWith;

// Slow links between 2 hosts of 2 devices, many short documents, one long one.
Request request_of(i64 memory = 0, int hosts = 2) {
  Request request{.model = model_of(4, 512, 1000),
                  .precision = precision_from("bf16"),
                  .hardware = hardware_of(hosts, 2, 5e-6, 50e9, 1e9),
                  .steps = {}};
  request.steps = {std::vector<i64>(60, 200)};
  for (const i64 length : {4096, 1000, 600}) request.steps[0].push_back(length);
  request.context = 4096;
  request.hardware.device.memory = {i64{64} << 30};
  request.memory = memory;
  request.limits = {.axes = axes_of_problems(),
                    .most_head_layers = 1,
                    .recompute = {config::Recompute::gathers, config::Recompute::full}};
  return request;
}

const std::vector<int> kOne = {0};

std::string refusal(const Request& request) {
  try {
    Planner(request).plan(1);
  } catch (const UserError& error) {
    return error.what();
  }
  return "";
}

TEST(Plan, buckets_of_a_choice_are_the_same_choice_again) {
  const Planner planner(request_of());
  size_t most = 0;
  for (const Choice& choice : planner.plan(40).best) {
    const std::vector<config::Bucket> buckets = planner.buckets(choice);
    ASSERT_EQ(buckets.size(), choice.phases.size());
    EXPECT_EQ(buckets.front().max_length, 4096);
    for (size_t b = 1; b < buckets.size(); ++b) EXPECT_LT(buckets[b].max_length, buckets[b - 1].max_length);
    const std::vector<int> order = planner.order(choice);
    const std::optional<Choice> again =
        planner.choice(buckets, order.empty() ? batch::published_order(static_cast<int>(buckets.size())) : order);
    ASSERT_TRUE(again);
    EXPECT_EQ(again->phases, choice.phases);
    EXPECT_DOUBLE_EQ(again->seconds, choice.seconds);
    most = std::max(most, buckets.size());
  }
  EXPECT_GT(most, 1u);
}

TEST(Plan, order_and_copies_at_home_are_reported_and_given) {
  const Planner planner(request_of());
  const int end = static_cast<int>(planner.model().bounds().size());
  const Phase longest{{2, end}, {{2, outer(2), 1}}, 4096}, shorter{{1, 2}, {{4, outer(1), 1}}, 2048},
      shortest{{0, 1}, {{1, outer(4), 1}}, 512};
  const std::vector<i64>& bounds = planner.model().bounds();
  Choice choice{{longest, shortest, shorter}};
  EXPECT_TRUE(planner.order(choice).empty()) << "as published";
  EXPECT_THAT(planner.to_string(choice), Not(AnyOf(HasSubstr("order"), HasSubstr("zero"))));
  choice = {{shorter, longest, shortest}, 0};
  EXPECT_THAT(planner.order(choice), ElementsAre(1, 0, 2));
  EXPECT_EQ(choice.longest(), longest);
  EXPECT_THAT(planner.to_string(choice),
              AllOf(StartsWith("to 4096: dp=2,tp=2,zero=0; "),
                    EndsWith(fmt::format("; in the order {}, {}, {}", bounds[1], bounds.back(), bounds[0]))));
  const std::vector<config::Bucket> buckets = planner.buckets(choice);
  EXPECT_EQ(buckets[0].strategy.zero, 0);
  EXPECT_EQ(buckets[1].strategy.zero, 1) << "home is the first one's";
  const std::optional<Choice> again = planner.choice(buckets, planner.order(choice));
  ASSERT_TRUE(again);
  EXPECT_EQ(again->phases, choice.phases);
  EXPECT_EQ(again->home(), choice.home());
}

TEST(Plan, buckets_that_the_model_cannot_time_are_no_choice) {
  const Planner planner(request_of());
  std::vector<config::Bucket> buckets = {{4096, {}, config::strategy_from_spec("2,2,1", 4, 4)}};
  EXPECT_TRUE(planner.choice(buckets, kOne)) << "without a capacity micro-batches are of the longest document";
  buckets[0].strategy.micro_batch_tokens = 1024;
  EXPECT_FALSE(planner.choice(buckets, kOne)) << "micro-batches shorter than a document";
  buckets[0].strategy = config::strategy_from_spec("2,2,1", 4, 4);
  buckets[0].strategy.schedule = config::ScheduleKind::zero_bubble;
  EXPECT_FALSE(planner.choice(buckets, kOne)) << "another schedule";
  EXPECT_FALSE(planner.choice({}, {}));
}

// Settings that change how a strategy works and are not in the search space.
TEST(Plan, settings_that_the_model_does_not_know_make_no_choice) {
  const Planner planner(request_of());
  const std::vector<std::pair<std::string, std::function<void(config::Strategy&)>>> unknown = {
      {"documents of a micro-batch", [](config::Strategy& s) { s.micro_batch_sequences = 1; }},
      {"activations that aren't cut on tokens", [](config::Strategy& s) { s.sequence_parallel = false; }},
      {"a parameter that is cut otherwise",
       [](config::Strategy& s) {
         s.splits = {{"lm_head.weight", {}}};
       }},
      {"a hand-written schedule", [](config::Strategy& s) { s.order.order = schedule::gpipe(2, 64).order; }},
  };
  for (const auto& [what, change] : unknown) {
    std::vector<config::Bucket> buckets = {{4096, {}, config::strategy_from_spec("1,2,2", 4, 4)}};
    ASSERT_TRUE(planner.choice(buckets, kOne));
    change(buckets[0].strategy);
    EXPECT_FALSE(planner.choice(buckets, kOne)) << what;
  }
}

TEST(Plan, neighbouring_buckets_with_the_same_strategy_are_one) {
  const Planner planner(request_of());
  const Shape wide{{2, outer(2), 1}}, narrow{{4, outer(1), 1}};
  const Choice choice{{{{1, 2}, wide, 4096}, {{2, 3}, narrow, 4096}, {{0, 1}, wide, 4096}}};
  const Choice merged = planner.merged(choice);
  EXPECT_THAT(merged.phases, ElementsAre(Phase{{0, 2}, wide, 4096}, choice.phases[1]));
  EXPECT_DOUBLE_EQ(merged.seconds, step_seconds(planner.model(), planner.transfers(), merged, 0));
  Choice apart = choice;
  apart.phases[2].capacity = 8192;
  EXPECT_EQ(planner.merged(apart).phases, apart.phases) << "micro-batches of other sizes";
  const Choice equal{{{{0, 1}, wide, 4096}, {{1, 2}, wide, 4096}, {{2, 3}, wide, 4096}}};
  EXPECT_THAT(planner.merged(equal).phases, ElementsAre(Phase{{0, 3}, wide, 4096}));
}

TEST(Plan, buckets_are_as_few_as_asked_for) {
  const Planner planner(request_of());
  const Choice one = planner.plan(1, 1).best.front();
  EXPECT_EQ(one.phases.size(), 1u);
  EXPECT_GE(one.seconds, planner.plan(1).best.front().seconds);
}

TEST(Plan, account_sums_to_the_step) {
  const Planner planner(request_of());
  for (const Choice& choice : planner.plan(3).best) {
    const Account a = planner.account(choice);
    EXPECT_NEAR(a.compute + a.communication + a.idle + a.transfers, a.seconds, 1e-12);
    EXPECT_GT(a.memory, planner.model().home_bytes(choice.home()));
    EXPECT_EQ(step_seconds(planner.model(), planner.transfers(), choice, a.memory), choice.seconds);
    EXPECT_GT(step_seconds(planner.model(), planner.transfers(), choice, a.memory - 1), choice.seconds)
        << "a byte less is too little";
  }
}

TEST(Plan, never_takes_more_memory_than_a_device_has) {
  Request request = request_of(i64{1} << 50);
  request.hardware.device.memory = {1 << 20};
  EXPECT_THAT(refusal(request), HasSubstr("no strategy fits 4 ranks of 1 MiB"));
}

TEST(Plan, leaves_a_devices_reserve_free) {
  Request request = request_of(i64{1} << 50);
  request.hardware.device.memory = {9 << 20};
  request.hardware.device.reserve = {8 << 20};
  EXPECT_THAT(refusal(request), HasSubstr("no strategy fits 4 ranks of 1 MiB"));
}

TEST(Plan, prints_the_longest_bucket_first) {
  const Planner planner(request_of());
  const Choice choice{{{{2, static_cast<int>(planner.model().bounds().size())}, {{1, outer(4), 1}}, 4096},
                       {{0, 2}, {{4, outer(1), 1}, config::Recompute::full}, 1024}}};
  EXPECT_EQ(planner.to_string(choice), fmt::format("to 4096: 1,4,1; to {}: dp=4,recompute=full,micro_batch_tokens=1024",
                                                   planner.model().bounds()[1]));
}

// The remedies that an error proposes are tried: this much memory, this many ranks, this short a context; and less of
// each doesn't suffice.
TEST(Plan, remedies_of_a_refusal_help) {
  const auto with = [](i64 memory, int hosts = 2) {
    Request request = request_of(memory, hosts);
    request.model.layers = 2;
    request.limits.most_head_layers = 0;
    return request;
  };
  const auto proposal = [](const std::string& said) {
    std::smatch match;
    EXPECT_TRUE(std::regex_search(said, match, std::regex("Enough: (\\d+) MiB of memory a rank"))) << said;
    return match.empty() ? i64{0} : i64{std::stoll(match[1])} << 20;
  };
  const i64 needed = proposal(refusal(with(1))), not_enough = needed - (i64{1} << 20);
  EXPECT_EQ(refusal(with(needed)), "");
  EXPECT_NO_THROW(Planner(with(needed)).check_fits());
  EXPECT_THROW(Planner(with(not_enough)).check_fits(), UserError);
  int contexts = 0, ranks = 0;
  const std::vector<i64> too_little{needed * 7 / 10, not_enough, needed * 9 / 10, needed / 2};
  for (const i64 memory : std::span(too_little).first(cases(4u, 1u))) {
    const std::string said = refusal(with(memory));
    std::smatch match;
    EXPECT_NE(said, "");
    EXPECT_EQ(proposal(said), needed);
    if (std::regex_search(said, match, std::regex("or (\\d+) ranks"))) {
      ++ranks;
      const int hosts = std::stoi(match[1]) / 2;
      EXPECT_EQ(refusal(with(memory, hosts)), "") << said;
      EXPECT_NE(refusal(with(memory, hosts / 2)), "") << said;
    }
    if (std::regex_search(said, match, std::regex("batch.context = (\\d+)"))) {
      ++contexts;
      Request shorter = with(memory);
      shorter.context = std::stoll(match[1]);
      std::erase_if(shorter.steps[0], [&](i64 length) { return length > shorter.context; });
      EXPECT_EQ(refusal(shorter), "") << said;
    }
  }
  EXPECT_GT(ranks, cases(1, -1));
  EXPECT_GT(contexts, cases(1, -1));
}

}  // namespace
}  // namespace switchyard::planner
