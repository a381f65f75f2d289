#include "report/plan_file.hpp"

#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "report/kept_file.hpp"

namespace switchyard::report {
namespace {

using nlohmann::ordered_json;

Candidate candidate_of(const config::Node& node) {
  Candidate candidate{.name = node["name"].text()};
  if (!node["seconds"].is_null()) candidate.seconds = node["seconds"].number(0, kMostSeconds);
  if (!node["peak"].is_null()) candidate.peak = node["peak"].integer(0, kMostBytes);
  candidate.fits = node["fits"].boolean();
  candidate.chosen = node["chosen"].boolean();
  candidate.single = node.has("single") && node["single"].boolean();  // older files lack it
  candidate.remark = node["remark"].text();
  return candidate;
}

template <class Read>
auto read(const std::string& text, const std::string& origin, Read read) {
  return read_kept(text, origin, "list of plans", "Remove it to report without them.", read);
}

std::string fingerprint_of(const config::Job& job) { return fmt::format("{:016x}", config::plan_fingerprint(job)); }

}  // namespace

std::string plan_text(const std::vector<Candidate>& candidates, const config::Job& planned) {
  ordered_json list = ordered_json::array();
  for (const Candidate& candidate : candidates) list.push_back(to_json(candidate));
  return ordered_json{{"job", fingerprint_of(planned)}, {"candidates", list}}.dump(1) + "\n";
}

std::vector<Candidate> read_plan(const std::string& text, const std::string& origin) {
  return read(text, origin, [](const config::Node& plan) {
    std::vector<Candidate> candidates;
    for (const config::Node& node : plan["candidates"].items()) candidates.push_back(candidate_of(node));
    return candidates;
  });
}

bool is_plan_of(const std::string& text, const config::Job& job, const std::string& origin) {
  return read(text, origin,
              [&](const config::Node& plan) { return plan.has("job") && plan["job"].text() == fingerprint_of(job); });
}

std::filesystem::path plan_path_of(std::filesystem::path job) { return job.replace_extension(".plan.json"); }

}  // namespace switchyard::report
