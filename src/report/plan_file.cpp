#include "report/plan_file.hpp"

#include <nlohmann/json.hpp>

#include "base/errors.hpp"

namespace switchyard::report {
namespace {

using nlohmann::ordered_json;

template <class T>
std::optional<T> maybe(const ordered_json& value) {
  return value.is_null() ? std::nullopt : std::optional(value.get<T>());
}

}  // namespace

std::string plan_text(const std::vector<Candidate>& candidates) {
  ordered_json list = ordered_json::array();
  for (const Candidate& candidate : candidates) list.push_back(to_json(candidate));
  return ordered_json{{"candidates", list}}.dump(1) + "\n";
}

std::vector<Candidate> read_plan(const std::string& text, const std::string& origin) {
  std::vector<Candidate> candidates;
  try {
    const ordered_json plan = ordered_json::parse(text);
    for (const ordered_json& c : plan.at("candidates"))
      candidates.push_back({.name = c.at("name").get<std::string>(),
                            .seconds = maybe<double>(c.at("seconds")),
                            .peak = maybe<i64>(c.at("peak")),
                            .fits = c.at("fits").get<bool>(),
                            .chosen = c.at("chosen").get<bool>(),
                            .remark = c.at("remark").get<std::string>()});
  } catch (const ordered_json::exception& error) {
    user_error("{} is no list of plans ({}). Remove it to report without them.", origin, error.what());
  }
  return candidates;
}

}  // namespace switchyard::report
