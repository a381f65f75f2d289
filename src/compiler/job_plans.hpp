// From a job to the inputs of the compiler and the batch planner.
#pragma once

#include <memory>
#include <vector>

#include "batch/planner.hpp"
#include "compiler/assemble.hpp"
#include "config/job.hpp"

namespace switchyard::compiler {

/// The job's precision; "auto" is fp32 on a CPU, which is slow at bf16, and bf16 on CUDA devices.
Precision precision_of(const config::RunSettings& run);

/// How the job's code is made for these ranks: collectives run beside computing where both the job and the ranks'
/// fabric let them.
CodeOptions code_options(const config::Job& job, const cluster::Cluster& cluster);

/// The job's model, to be compiled for any strategies.
std::shared_ptr<const CompiledModel> model_of(const config::Job& job, const cluster::Cluster& cluster);
/// The same to compute losses only: without backward pass and dropout.
std::shared_ptr<const CompiledModel> evaluated_model_of(const config::Job& job, const cluster::Cluster& cluster);
/// Plans for training a resolved job: its model, a strategy per bucket, home on the strategy of bucket run.home.
/// errors  UserError where a strategy does not fit the model
Plans plans_of(const config::Job& job, std::shared_ptr<const CompiledModel> model);
Plans plans_of(const config::Job& job, const cluster::Cluster& cluster);

/// The job's buckets for the batch planner.
std::vector<batch::BucketSpec> bucket_specs(const config::Job& job, const Plans& plans);

/// Buckets in the order in which a step of the job runs them.
std::vector<int> phase_order(const config::Job& job);

/// Flops of the forward pass of a sequence: 2 per token and weight of a product, and 4 * head_dim per head and
/// query-key pair.
batch::WorkModel work_model(const config::ModelConfig& model);

/// Flops of the model in a step on documents of so many tokens: the forward pass, and twice that for the backward pass.
double step_flops(const batch::WorkModel& work, const std::vector<i64>& lengths);

}  // namespace switchyard::compiler
