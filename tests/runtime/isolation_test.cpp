// Documents in the same packed sequence don't affect each other.
#include <gtest/gtest.h>

#include <mutex>

#include "tiny_job.hpp"

namespace switchyard::runtime {
namespace {

// A model with a layer for each chunk of two stages that have two.
config::ModelConfig model() {
  config::ModelConfig model = tiny_llama();
  model.layers = 4;
  return model;
}

// Row of each document's first token, where documents follow one another.
std::vector<i64> starts_of(const Documents& documents) {
  std::vector<i64> starts{0};
  for (const auto& document : documents) starts.push_back(starts.back() + static_cast<i64>(document.size()));
  return starts;
}

// Logits (T, V) of all documents, in one micro-batch, forward only.
at::Tensor logits_of(const std::string& spec, int ranks, const Documents& documents) {
  const compiler::Plans plans(models::build(model(), kFp64, models::Output::logits),
                              {config::strategy_from_spec(spec, ranks, model().layers)}, 0, cluster::uniform(1, ranks),
                              switching::Planner::relay);
  const batch::StepPlan plan = tiny_batch(0, documents, plans, {kLongest});
  EXPECT_EQ(plan.phases.at(0).replica.at(0).size(), 1u);
  const ir::Program program = compiler::assemble(plan, plans, {.train = false});
  const std::vector<i64> starts = starts_of(documents);
  at::Tensor whole = empty({starts.back(), model().vocab_size}, DType::f64, at::kCPU);
  std::mutex mutex;
  const auto ends = comm::run_ranks(comm::thread_fabrics(ranks, plans.cluster(), {}), [&](comm::Fabric& fabric) {
    Store store(plans, fabric.rank(), at::kCPU);
    store.home.initialize(tiny_values(plans.graph()));
    Executor executor(plans, store, fabric, {});
    executor.run(program, {&plan, &documents, {}});
    const std::lock_guard lock(mutex);
    for (const Logits& part : executor.take_logits()) {
      i64 token = 0;
      for (const batch::Piece& piece : plan.phases[0].replica[0][0].shard[static_cast<size_t>(part.ring_rank)])
        for (int i = 0; i < piece.count; ++i, ++token) {
          const i64 row = token - part.first_token;
          if (piece.doc >= 0 && row >= 0 && row < part.values.size(0))
            whole.select(0, starts[static_cast<size_t>(piece.doc)] + piece.first + i)
                .narrow(0, part.first_column, part.values.size(1))
                .copy_(part.values.select(0, row));
        }
    }
  });
  EXPECT_EQ(ends, std::vector<std::string>(static_cast<size_t>(ranks)));
  return whole;
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
  const std::vector<i64> starts = starts_of(documents);
  for (size_t document = 0; document < documents.size(); ++document)
    for (i64 token = 0; token < std::ssize(documents[document]); ++token)
      EXPECT_EQ(tasks_equal(starts[document] + token), document != 1 || token < kChanged)
          << "document " << document << ", token " << token;
}

INSTANTIATE_TEST_SUITE_P(Strategies, Isolation,
                         testing::Values(std::pair("1,1,1", 1), std::pair("1,2,1", 2), std::pair("1,4,1", 4),
                                         std::pair("1,2,2", 4), std::pair("pp=2,schedule=zero-bubble", 2),
                                         std::pair("pp=2,schedule=zb-v", 2), std::pair("ring=2", 2),
                                         std::pair("ring=3", 3), std::pair("ring=4,ring_degree=uniform", 4),
                                         std::pair("ring=2,ulysses=2,ring_degree=uniform", 4),
                                         std::pair("ring=3,packing=stream,exchange=ring", 3),
                                         std::pair("ring=4,packing=stream,exchange=ring", 4),
                                         std::pair("pp=2,ring=2,ring_degree=uniform", 4),
                                         std::pair("tp=2,ring=2,ring_degree=uniform", 4),
                                         std::pair("ring=4,zero=3,ring_degree=uniform", 4),
                                         std::pair("ring=3,exchange=ring,ring_degree=uniform", 3)),
                         [](const auto& p) { return "Case" + std::to_string(p.index); });

}  // namespace
}  // namespace switchyard::runtime
