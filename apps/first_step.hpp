// The first steps of a job, planned as they will be when it trains.
#pragma once

#include <optional>
#include <vector>

#include "compiler/job_plans.hpp"

namespace switchyard::apps {

struct PlannedStep {
  std::vector<i64> lengths;  // tokens of each document
  batch::StepPlan plan;
  ir::Program program;
  std::optional<i64> peak{};  // bytes of the rank with the highest peak, where the job has a budget
};

/// Tokens of each document of steps 1 to `count`: as batch.lengths says, or of the job's data; without both of made-up
/// documents, which is said on standard output.
std::vector<std::vector<i64>> lengths_of_steps(const config::Job& job, int count);
/// The same of step index + 1 alone.
std::vector<i64> lengths_of_step(const config::Job& job, i64 index);
/// Step index + 1 of documents with these lengths.
PlannedStep planned_step(const config::Job& job, const compiler::Plans& plans, i64 index, std::vector<i64> lengths);

/// Of the job's data; without data of made-up documents, which is said on standard output.
PlannedStep first_step(const config::Job& job, const compiler::Plans& plans);
/// Steps 1 to `count`.
std::vector<PlannedStep> first_steps(const config::Job& job, const compiler::Plans& plans, int count);

}  // namespace switchyard::apps
