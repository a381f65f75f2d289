// Planning a job: from a model, a cluster and lengths of documents to buckets with strategies.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "config/job.hpp"
#include "planner/search.hpp"

namespace switchyard::planner {

/// steps: lengths of the documents of steps that stand for all, 1 to context. memory: bytes a rank may use, home and
/// all; 0: the device's. allowed: codecs that strategies may have.
struct Request {
  config::ModelConfig model;
  Precision precision;
  cluster::Hardware hardware;
  std::vector<std::vector<i64>> steps;
  i64 context = 0, memory = 0;
  SpaceLimits limits{};
  compiler::CodeOptions code{};
  config::Compression allowed{};
};

/// A plan's step and where it goes: compute + communication + idle are means over ranks of all phases, transfers what
/// parameters, gradients and the update add to them.
struct Account {
  double seconds = 0, compute = 0, communication = 0, idle = 0, transfers = 0;
  i64 memory = 0;           // peak of the rank with the highest one, with home
  i64 memory_in_pairs = 0;  // with twice the activations: of two micro-batches of this size at a time
};

class Planner {
 public:
  explicit Planner(Request request);

  /// The best plans, and as many single strategies, if most_buckets isn't 1. most_buckets: 0 for any number. spent,
  /// runners_up, on_first: as in SearchSettings; of_singles: is limited where runners_up is. share: of the memory that
  /// they fill at most.
  /// errors  UserError if nothing fits: what is missing, and the smallest change that would help
  Found plan(int top, int most_buckets = 0, std::function<double()> spent = {}, std::optional<i64> runners_up = {},
             std::function<void(const Choice&)> on_first = {}, double share = 1) const;
  /// UserError, as of plan, if even the plan with the lowest memory needs more than there is. Takes no rates.
  void check_fits() const;
  /// The plan with one bucket in place of neighbouring ones that have the same shape and capacity; it runs in the place
  /// of the longest of them. plan() returns no others.
  Choice merged(Choice choice) const;
  /// A plan as a job has it: the longest bucket first, home on it; with the codecs that gain in the model.
  std::vector<config::Bucket> buckets(const Choice& choice) const;
  /// The order in which a step runs those; empty if it is the published one.
  std::vector<int> order(const Choice& choice) const;
  /// The other way, home on the first bucket: where every bucket's strategy is a shape of equal pipelines with
  /// micro-batches that the model can time, else nothing.
  std::optional<Choice> choice(const std::vector<config::Bucket>& buckets, std::span<const int> order) const;
  Account account(const Choice& choice) const;
  /// "to 4096: 8,1,1; to 1024: dp=4,tp=2,micro_batch_tokens=8192", as the option --strategy has it, the longest first;
  /// then the order, where it isn't the published one.
  std::string to_string(const Choice& choice) const;

  const Request& request() const { return request_; }
  /// Bytes that a rank may use: the budget in force.
  i64 memory() const { return memory_; }
  /// The codecs that strategies have: the allowed ones that gain in the model.
  const config::Compression& compression() const { return model_->units.compression(); }
  const CostModel& model() const { return model_->costs; }
  const Transfers& transfers() const { return model_->transfers; }

 private:
  /// Bytes that the plan with the lowest memory needs for the documents up to each of the model's bounds.
  std::vector<i64> least_needs() const;
  [[noreturn]] void nothing_fits() const;

  /// The model of the step, with what it is made of.
  struct Model {
    Model(const std::vector<std::vector<i64>>& steps, i64 context, std::shared_ptr<const LayerCodes> codes);
    UnitCosts units;
    Transfers transfers;
    CostModel costs;
  };

  Request request_;
  i64 memory_;
  std::unique_ptr<Model> model_;
  mutable std::vector<std::unique_ptr<Model>> equal_;  // made by the first search
  std::vector<Shape> shapes_;
};

}  // namespace switchyard::planner
