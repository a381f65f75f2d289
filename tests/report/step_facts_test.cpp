#include "report/step_facts.hpp"

#include <gtest/gtest.h>

#include <numeric>

#include "batch/validate.hpp"
#include "steps.hpp"
#include "switching/bounds.hpp"

namespace switchyard::report {
namespace {

TEST(Buckets, count_documents_tokens_and_padding_of_the_plan) {
  const SimulatedStep step({"1,2,2", "4,1,1"}, 1, 4, {60, 50, 40, 30, 20, 10, 32, 33});
  std::vector<BucketRow> rows = bucket_rows(step.job, step.plan, step.plans, step.lengths);
  ASSERT_EQ(rows.size(), 2u);
  EXPECT_EQ(rows[0].documents, 4);
  EXPECT_EQ(rows[0].tokens, 60 + 50 + 40 + 33);
  EXPECT_EQ(rows[1].documents, 4);
  EXPECT_EQ(rows[1].tokens, 30 + 20 + 10 + 32);
  EXPECT_EQ(rows[0].replicas, 1);
  EXPECT_EQ(rows[1].replicas, 4);
  EXPECT_EQ(rows[1].ranks, 4);
  EXPECT_EQ(rows[0].min_length, 33);
  EXPECT_EQ(rows[1].min_length, 1);
  const double computed = static_cast<double>(rows[0].computed + rows[1].computed);
  EXPECT_NEAR(1 - static_cast<double>(rows[0].tokens + rows[1].tokens) / computed, batch::padding_share(step.plan),
              1e-12);
  add_times(rows, step.plan, predicted_timeline(step.program, step.simulation));
  for (size_t phase = 0; phase < step.plan.phases.size(); ++phase) {
    double begin = 1e9, end = 0;
    for (size_t row = 0; row < step.program.tasks.size(); ++row) {
      const ir::Task& task = step.program.tasks[row];
      if (task.kind() != ir::TaskKind::run || task.phase != static_cast<int>(phase)) continue;
      for (const simulator::Span& span : step.simulation.tasks[row].spans) {
        begin = std::min(begin, span.begin);
        end = std::max(end, span.end);
      }
    }
    const BucketRow& row = rows[static_cast<size_t>(step.plan.phases[phase].strategy)];
    EXPECT_NEAR(*row.predicted_seconds, end - begin, 1e-12);
    EXPECT_FALSE(row.measured_seconds.has_value());
  }
}

TEST(Buckets, without_documents_have_zeros) {
  const SimulatedStep step({"1,2,2", "4,1,1"}, 1, 4, {60, 50});
  std::vector<BucketRow> rows = bucket_rows(step.job, step.plan, step.plans, step.lengths);
  add_times(rows, step.plan, predicted_timeline(step.program, step.simulation));
  EXPECT_EQ(rows[1].documents, 0);
  EXPECT_EQ(rows[1].padding_share(), 0);
  EXPECT_FALSE(rows[1].predicted_seconds.has_value());
}

TEST(Buckets, that_a_step_did_not_choose_have_no_lengths_and_the_next_longer_one_has_theirs) {
  SimulatedStep step({"1,2,2", "4,1,1", "2,2,1"}, 1, 4, {60, 50, 10});
  step.job.run.choose_buckets = true;
  const std::vector<batch::BucketSpec> specs = compiler::bucket_specs(step.job, step.plans);
  const std::vector<batch::BucketSpec> chosen{specs[0], specs[2]};
  step.plan = batch::plan_batch(0, step.lengths, chosen, compiler::work_model(step.job.model.config));
  const std::vector<BucketRow> rows = bucket_rows(step.job, step.plan, step.plans, step.lengths);
  EXPECT_EQ(rows[0].min_length, 17);
  EXPECT_EQ(rows[1].min_length, std::nullopt);
  EXPECT_EQ(rows[2].min_length, 1);
}

TEST(Documents, of_a_phase_have_its_strategy_and_the_bytes_of_keys_that_the_program_sends) {
  const SimulatedStep step({"dp=2,ring=2", "4,1,1"}, 1, 4, {60, 50, 40, 33, 20, 10});
  const Documents documents = documents_of(step.job, step.plan, step.plans, step.lengths);
  EXPECT_EQ(documents.step, 1);
  EXPECT_EQ(documents.lengths, step.lengths);
  ASSERT_EQ(documents.strategies, (std::vector<std::string>{"dp=2,ring=2", "4,1,1"}));
  ASSERT_EQ(documents.phases.size(), 2u);
  EXPECT_TRUE(documents.phases[0].ring);
  EXPECT_FALSE(documents.phases[1].ring);
  i64 bytes = 0;
  for (const batch::ReplicaPlaces& replica : documents.phases[0].replicas)
    for (const auto& ranks : replica.micro_batches)
      for (const batch::RingPlace& place : ranks) bytes += place.key_bytes;
  const std::vector<LinkUse> links = link_uses(step.program, step.plan, step.plans);
  EXPECT_GT(bytes, 0);
  EXPECT_EQ(bytes, links.back().intra + links.back().inter);
}

TEST(Links, carry_what_the_tasks_send_by_class) {
  const SimulatedStep step({"2,2,2", "8,1,1"}, 2, 4, {60, 50, 40, 30, 20, 10, 32, 33});
  const std::vector<LinkUse> uses = link_uses(step.program, step.plan, step.plans);
  ASSERT_EQ(uses.size(), 6u);
  i64 sends = 0, moves = 0, reductions = 0;
  for (const ir::Task& task : step.program.tasks) {
    if (task.kind() == ir::TaskKind::send) sends += task.bytes;
    if (task.kind() == ir::TaskKind::move) moves += task.bytes;
    if (task.kind() == ir::TaskKind::reduce) reductions += task.bytes;
  }
  EXPECT_GT(uses[0].intra, 0);
  EXPECT_EQ(uses[0].inter, 0);  // the two ranks of tensor parallelism share a host
  EXPECT_EQ(uses[1].intra + uses[1].inter, sends);
  EXPECT_EQ(uses[2].intra + uses[2].inter, moves);
  EXPECT_EQ(uses[3].intra + uses[3].inter, reductions);
  EXPECT_GT(uses[1].inter, 0);  // the stages are on different hosts
}

// Runs are cut into pieces, which count what they exchange once.
TEST(Links, of_single_runs_are_gathers_and_reductions) {
  const SimulatedStep plain({"2,2,1"}, 1, 4, {60, 50, 40, 30}), step({"dp=2,tp=2,zero=3"}, 1, 4, {60, 50, 40, 30});
  i64 transfers = 0;
  for (const ir::Task& task : step.program.tasks)
    if (task.kind() == ir::TaskKind::gather || task.kind() == ir::TaskKind::reduce_scatter) transfers += task.bytes;
  const std::vector<LinkUse> uses = link_uses(step.program, step.plan, step.plans);
  EXPECT_GT(transfers, 0);
  EXPECT_EQ(uses[4].intra, transfers);
  EXPECT_EQ(uses[0].intra, link_uses(plain.program, plain.plan, plain.plans)[0].intra);
}

TEST(Matrices, sum_to_the_traffic_of_their_plan) {
  const SimulatedStep step({"2,2,2", "8,1,1"}, 2, 4, {60, 50, 40, 30, 20, 10, 32, 33});
  const std::vector<Matrix> matrices = switch_matrices(step.program, step.plan, step.plans);
  ASSERT_EQ(matrices.size(), 4u);
  EXPECT_EQ(matrices[1].title, "parameters: 2,2,2 \u2192 8,1,1");
  const switching::Traffic traffic = switching::traffic(step.plans.moves(0, 1), step.plans.cluster(), 4);
  EXPECT_EQ(matrices[1].intra, traffic.links.intra_host);
  EXPECT_EQ(matrices[1].inter, traffic.links.inter_host);
  std::vector<i64> sent(8, 0);
  for (const Matrix& matrix : matrices) {
    i64 intra = 0, inter = 0;
    for (const Matrix::Cell& cell : matrix.cells) {
      (cell.from / 4 == cell.to / 4 ? intra : inter) += cell.bytes;
      if (&matrix == &matrices[1]) sent[static_cast<size_t>(cell.from)] += cell.bytes;
    }
    EXPECT_EQ(intra, matrix.intra);
    EXPECT_EQ(inter, matrix.inter);
    EXPECT_FALSE(matrix.by_host);
  }
  EXPECT_EQ(*std::max_element(sent.begin(), sent.end()), traffic.max_send);
  EXPECT_LE(*matrices[1].inter_bound, matrices[1].inter);
}

TEST(Matrices, and_links_have_the_sums_that_replicas_get) {
  SimulatedStep step({"2,2,2"}, 2, 4, {60, 50, 40, 30}, 0);
  const std::vector<Matrix> matrices = switch_matrices(step.program, step.plan, step.plans);
  ASSERT_EQ(matrices.size(), 3u);
  EXPECT_EQ(matrices[0].intra + matrices[0].inter, 0) << "every rank has its parameters";
  EXPECT_EQ(matrices[2].title, "gradients: home \u2192 its copies");
  EXPECT_GT(matrices[2].intra, 0);
  const LinkUse gradients = link_uses(step.program, step.plan, step.plans)[3];
  EXPECT_EQ(gradients.intra, matrices[1].intra + matrices[2].intra);
  EXPECT_EQ(gradients.inter, matrices[1].inter + matrices[2].inter);
}

TEST(Matrices, and_links_have_encoded_messages_as_they_travel) {
  const std::vector<i64> lengths{60, 50, 40, 30};
  const SimulatedStep plain({"4,1,1"}, 1, 4, lengths), encoded({"dp=4,compression.gradients=bf16"}, 1, 4, lengths);
  const auto sent = [](const SimulatedStep& step) {
    const Matrix gradients = switch_matrices(step.program, step.plan, step.plans)[1];
    EXPECT_EQ(gradients.intra, link_uses(step.program, step.plan, step.plans)[3].intra);
    return gradients.intra;
  };
  EXPECT_LT(sent(encoded), sent(plain));
}

TEST(Matrices, of_many_ranks_are_folded_to_hosts) {
  const SimulatedStep step({"72,1,1"}, 9, 8, std::vector<i64>(72, 60));
  const std::vector<Matrix> matrices = switch_matrices(step.program, step.plan, step.plans);
  ASSERT_EQ(matrices.size(), 2u);
  for (const Matrix& matrix : matrices) {
    EXPECT_TRUE(matrix.by_host);
    EXPECT_EQ(matrix.size, 9);
    i64 intra = 0, inter = 0;
    for (const Matrix::Cell& cell : matrix.cells) (cell.from == cell.to ? intra : inter) += cell.bytes;
    EXPECT_EQ(intra, matrix.intra);
    EXPECT_EQ(inter, matrix.inter);
  }
}

}  // namespace
}  // namespace switchyard::report
