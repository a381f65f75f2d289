// Documents in the same packed sequence don't affect each other.
#include <gtest/gtest.h>

#include <mutex>

#include "tiny_job.hpp"

namespace switchyard::runtime {
namespace {

// Logits (T, V) of the only micro-batch of a batch, forward only.
at::Tensor logits_of(const std::string& spec, int ranks, const Documents& documents) {
  const compiler::Plans plans(models::build(tiny_llama(), kFp64, models::Output::logits),
                              {config::strategy_from_spec(spec, ranks, tiny_llama().layers)}, 0,
                              cluster::uniform(1, ranks), switching::Planner::relay);
  const batch::StepPlan plan = tiny_batch(0, documents, plans, {kLongest});
  EXPECT_EQ(plan.phases.at(0).replica.at(0).size(), 1u);
  const ir::Program program = compiler::assemble(plan, plans, {.train = false});
  at::Tensor whole =
      empty({batch::tokens(plan.phases[0].replica[0][0]), tiny_llama().vocab_size}, DType::f64, at::kCPU);
  std::mutex mutex;
  const auto ends = comm::run_ranks(comm::thread_fabrics(ranks, plans.cluster(), {}), [&](comm::Fabric& fabric) {
    Store store(plans, fabric.rank(), at::kCPU);
    store.home.initialize(tiny_values(plans.graph()));
    Executor executor(plans, store, fabric, {});
    executor.run(program, {&plan, &documents, {}});
    const std::lock_guard lock(mutex);
    for (const Logits& part : executor.take_logits())
      whole.narrow(0, part.first_token, part.values.size(0))
          .narrow(1, part.first_column, part.values.size(1))
          .copy_(part.values);
  });
  EXPECT_EQ(ends, std::vector<std::string>(static_cast<size_t>(ranks)));
  return whole;
}

// First position and number of tokens of each document.
std::vector<std::pair<i64, i64>> places_of(const Documents& documents) {
  const compiler::Plans plans = tiny_plans({"1,1,1"}, 1);
  std::vector<std::pair<i64, i64>> places(documents.size());
  i64 at = 0;
  const batch::StepPlan plan = tiny_batch(0, documents, plans, {kLongest});
  for (const batch::Piece& piece : plan.phases[0].replica[0][0].shard[0]) {
    if (piece.doc >= 0) places[static_cast<size_t>(piece.doc)] = {at, piece.count};
    at += piece.count;
  }
  return places;
}

class Isolation : public testing::TestWithParam<std::pair<const char*, int>> {};

TEST_P(Isolation, ATokenChangesNoLogitOfAnotherDocumentAndNoneBeforeIt) {
  const Documents documents = {{1, 2, 3, 4, 5, 6}, {7, 8, 9, 10, 11, 12, 13}, {14, 15, 16}};
  constexpr i64 kChanged = 3;  // token of document 1
  Documents changed = documents;
  changed[1][kChanged] = 33;
  const auto [spec, ranks] = GetParam();
  const at::Tensor before = logits_of(spec, ranks, documents), after = logits_of(spec, ranks, changed);
  const auto tasks_equal = [&](i64 id) { return before.select(0, id).equal(after.select(0, id)); };
  const auto places = places_of(documents);
  for (size_t document = 0; document < documents.size(); ++document)
    for (i64 token = 0; token < places[document].second; ++token)
      EXPECT_EQ(tasks_equal(places[document].first + token), document != 1 || token < kChanged)
          << "document " << document << ", token " << token;
}

INSTANTIATE_TEST_SUITE_P(Strategies, Isolation,
                         testing::Values(std::pair("1,1,1", 1), std::pair("1,2,1", 2), std::pair("1,4,1", 4),
                                         std::pair("1,2,2", 4)),
                         [](const auto& p) { return "Case" + std::to_string(p.index); });

}  // namespace
}  // namespace switchyard::runtime
