#include "candidates.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "base/errors.hpp"
#include "compiler/memory.hpp"
#include "first_step.hpp"
#include "simulator/simulate.hpp"

namespace switchyard::apps {
namespace {

std::vector<std::string> written_out(const std::vector<std::string>& specs, int ranks) {
  std::vector<std::string> all;
  for (const std::string& spec : specs) {
    if (spec != "all") {
      all.push_back(spec);
      continue;
    }
    for (int dp = 1; dp <= ranks; ++dp)
      for (int tp = 1; tp <= ranks / dp; ++tp)
        if (ranks % (dp * tp) == 0) all.push_back(fmt::format("{},{},{}", dp, tp, ranks / dp / tp));
  }
  return all;
}

// The job with one bucket for all documents, with the settings of its longest bucket.
config::Job alone(const config::Job& job, const std::string& spec) {
  config::Job other = job;
  config::Bucket bucket = job.buckets.front();
  bucket.degrees = config::read_strategy_text(spec).groups;
  bucket.strategy = config::strategy_from_spec(spec, job.run.ranks, job.model.config.layers, bucket.strategy);
  other.buckets = {std::move(bucket)};
  other.run.home = 0;
  other.run.order.clear();
  config::validate(other);
  return other;
}

void predict(report::Candidate& candidate, const PlannedStep& step, const compiler::Plans& plans,
             const cluster::Hardware& hardware, i64 limit) {
  candidate.seconds = simulator::simulate(step.program, step.plan, plans, hardware).step_seconds;
  candidate.peak = compiler::rank_with_highest_peak(step.program, step.plan, plans).second.total;
  candidate.fits = limit == 0 || candidate.peak <= limit;
}

}  // namespace

std::vector<report::Candidate> candidates(const config::Job& job, const compiler::Plans& plans,
                                          const cluster::Hardware& hardware, const PlannedStep& step,
                                          const std::vector<std::string>& specs, i64 limit) {
  std::vector<report::Candidate> all{{.name = "this job", .chosen = true, .single = job.buckets.size() == 1}};
  predict(all.front(), step, plans, hardware, limit);
  for (const std::string& spec : written_out(specs, job.run.ranks)) {
    config::read_strategy_text(spec);  // a malformed spec is the user's error, not the candidate's
    report::Candidate& candidate = all.emplace_back(report::Candidate{.name = spec, .single = true});
    try {
      const config::Job other = alone(job, spec);
      const compiler::Plans made = compiler::plans_of(other, hardware.placement());
      predict(candidate, planned_step(other, made, 0, step.lengths), made, hardware, limit);
    } catch (const UserError& error) {
      candidate.fits = false;
      candidate.remark = error.what();
    }
  }
  return all;
}

}  // namespace switchyard::apps
