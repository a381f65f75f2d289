#include "report/page.hpp"

#include <fmt/format.h>

#include <cmath>
#include <nlohmann/json.hpp>
#include <sstream>

#include "report/headline.hpp"

namespace switchyard::report {
namespace {

using Json = nlohmann::ordered_json;

constexpr std::array<const char*, kKinds> kKindNames = {"forward",          "backward",          "weight gradient",
                                                        "collective",       "activations sent",  "gradients sent",
                                                        "parameters moved", "gradients reduced", "norm",
                                                        "update",           "waiting",           "other"};

double rounded(double seconds) { return std::round(seconds * 1e9) / 1e9; }

template <class T>
Json maybe(const std::optional<T>& value) {
  if (!value) return nullptr;
  return *value;
}

Json pairs(const std::vector<std::pair<std::string, std::string>>& list) {
  Json json = Json::array();
  for (const auto& [name, value] : list) json.push_back({name, value});
  return json;
}

template <class T, class Make>
Json list(const std::vector<T>& values, Make make) {
  Json json = Json::array();
  for (const T& value : values) json.push_back(make(value));
  return json;
}

Json to_json(const PhaseLabel& phase) {
  Json micro_batches = Json::array();
  for (const auto& replica : phase.micro_batches)
    micro_batches.push_back(list(replica, [](const MicroBatchLabel& mb) { return Json{mb.documents, mb.tokens}; }));
  return {
      {"strategy", phase.strategy}, {"layers", phase.layers}, {"group", phase.group}, {"micro_batches", micro_batches}};
}

Json to_json(const Timeline& timeline) {
  Json tracks = Json::array(), track = Json::array(), begin = Json::array(), end = Json::array(), kind = Json::array(),
       name = Json::array(), busy = Json::array();
  for (size_t t = 0; t < timeline.tracks.size(); ++t) {
    const Track& one = timeline.tracks[t];
    tracks.push_back({{"ranks", ranks_text(one.ranks)},
                      {"shown", one.shown},
                      {"count", one.ranks.size()},
                      {"measured", one.measured}});
    for (const Span& span : one.spans) {
      track.push_back(t);
      begin.push_back(rounded(span.begin));
      end.push_back(rounded(span.end));
      kind.push_back(static_cast<int>(span.kind));
      name.push_back(span.name);
      busy.push_back(std::round(1e3 * span.busy) / 1e3);
    }
  }
  return {
      {"step", timeline.step},
      {"predicted_seconds", maybe(timeline.predicted_seconds)},
      {"measured_seconds", maybe(timeline.measured_seconds)},
      {"folded", timeline.folded},
      {"merged", timeline.merged},
      {"names", timeline.names},
      {"phases", list(timeline.phases, [](const PhaseLabel& phase) { return to_json(phase); })},
      {"tracks", tracks},
      {"spans", {{"track", track}, {"begin", begin}, {"end", end}, {"kind", kind}, {"name", name}, {"busy", busy}}}};
}

Json to_json(const Memory& memory) {
  Json classes = Json::array(), curves = Json::array();
  for (size_t c = 0; c < compiler::kMemoryClasses; ++c)
    classes.push_back(compiler::name_of(static_cast<compiler::MemoryClass>(c)));
  for (const MemoryCurve& curve : memory.curves) {
    Json seconds = Json::array(), bytes = Json::array();
    for (const double at : curve.seconds) seconds.push_back(rounded(at));
    for (size_t c = 0; c < compiler::kMemoryClasses; ++c) {
      Json one = Json::array();
      for (const auto& point : curve.bytes) one.push_back(point[c]);
      bytes.push_back(one);
    }
    curves.push_back(
        {{"ranks", ranks_text(curve.ranks)}, {"count", curve.ranks.size()}, {"seconds", seconds}, {"bytes", bytes}});
  }
  return {
      {"budget", memory.budget}, {"limit_name", memory.limit_name},         {"classes", classes},
      {"curves", curves},        {"predicted_peak", memory.predicted_peak}, {"measured_peak", memory.measured_peak}};
}

Json to_json(const Steps& steps) {
  Json json{{"step", steps.step}};
  for (const Series& series : steps.series) {
    json[series.name] = Json::array();
    for (const auto& value : series.values) json[series.name].push_back(maybe(value));
  }
  return json;
}

Json to_json(const BucketRow& row) {
  return {{"strategy", row.strategy},
          {"min_length", maybe(row.min_length)},
          {"max_length", row.max_length},
          {"documents", row.documents},
          {"tokens", row.tokens},
          {"computed", row.computed},
          {"padding_share", row.padding_share()},
          {"micro_batches", row.micro_batches},
          {"ranks", row.ranks},
          {"replicas", row.replicas},
          {"predicted_seconds", maybe(row.predicted_seconds)},
          {"measured_seconds", maybe(row.measured_seconds)}};
}

// A piece as document, first token and number of tokens; of padding the document is -1.
Json to_json(const batch::RingPlace& place) {
  return {{"pieces", list(place.pieces,
                          [](const batch::Piece& p) {
                            return Json{p.doc, p.first, p.count};
                          })},
          {"tokens", place.tokens},
          {"padding", place.padding},
          {"pairs", place.pairs},
          {"keys_inside", place.keys.inside},
          {"keys_across", place.keys.across},
          {"key_bytes", place.key_bytes},
          {"share", place.share}};
}

Json to_json(const batch::ReplicaPlaces& replica) {
  return {{"documents", replica.documents},
          {"tokens", replica.tokens},
          {"padding", replica.padding},
          {"pairs", replica.pairs},
          {"share", replica.share},
          {"micro_batches", list(replica.micro_batches, [](const std::vector<batch::RingPlace>& ranks) {
             return list(ranks, [](const batch::RingPlace& place) { return to_json(place); });
           })}};
}

Json to_json(const Documents& documents) {
  Json phases = Json::array();
  for (size_t p = 0; p < documents.phases.size(); ++p) {
    const batch::PhasePlaces& phase = documents.phases[p];
    phases.push_back({{"strategy", documents.strategies[p]},
                      {"max_length", phase.max_length},
                      {"documents", phase.documents},
                      {"ring", phase.ring},
                      {"slowest", phase.slowest},
                      {"bound", phase.bound},
                      {"replicas", list(phase.replicas, [](const auto& replica) { return to_json(replica); })}});
  }
  return {{"step", documents.step}, {"lengths", documents.lengths}, {"phases", phases}};
}

Json to_json(const Matrix& matrix) {
  Json cells = Json::array();
  for (const Matrix::Cell& cell : matrix.cells) cells.push_back({cell.from, cell.to, cell.bytes});
  return {{"title", matrix.title},
          {"by_host", matrix.by_host},
          {"size", matrix.size},
          {"cells", cells},
          {"intra", matrix.intra},
          {"inter", matrix.inter},
          {"inter_bound", maybe(matrix.inter_bound)}};
}

Json to_json(const Run& run) {
  Json json{{"name", run.name},          {"simulated", run.simulated}, {"headline", headline_of(run)},
            {"facts", pairs(run.facts)}, {"tiles", pairs(run.tiles)},  {"notes", run.notes}};
  json["steps"] = run.steps ? to_json(*run.steps) : Json(nullptr);
  json["timelines"] = list(run.timelines, [](const Timeline& timeline) { return to_json(timeline); });
  json["memory"] = run.memory ? to_json(*run.memory) : Json(nullptr);
  json["buckets"] = list(run.buckets, [](const BucketRow& row) { return to_json(row); });
  json["documents"] = run.documents ? to_json(*run.documents) : Json(nullptr);
  json["links"] = list(run.links, [](const LinkUse& use) {
    return Json{{"what", use.what}, {"intra", use.intra}, {"inter", use.inter}};
  });
  json["matrices"] = list(run.matrices, [](const Matrix& matrix) { return to_json(matrix); });
  json["candidates"] = list(run.candidates, [](const Candidate& candidate) { return to_json(candidate); });
  json["shares"] = list(run.shares, [](const TimeShare& s) {
    return Json{{"ranks", ranks_text(s.ranks)}, {"count", s.ranks.size()},          {"compute", s.compute},
                {"overlap", s.overlap},         {"communication", s.communication}, {"idle", s.idle}};
  });
  json["parts"] = list(run.parts, [](const StepParts& p) {
    return Json{{"measured", p.measured},
                {"compute", p.compute},
                {"collectives", p.collectives},
                {"switching", p.switching},
                {"sends", p.sends},
                {"pipeline", p.pipeline},
                {"imbalance", p.imbalance},
                {"longest_rank", p.longest_rank},
                {"longest", p.longest}};
  });
  json["longest"] = list(run.longest, [](const LongTask& task) {
    return Json{{"name", task.name},
                {"kind", static_cast<int>(task.kind)},
                {"measured", task.measured},
                {"rank", task.rank},
                {"begin", rounded(task.begin)},
                {"end", rounded(task.end)},
                {"working", rounded(task.working)}};
  });
  return json;
}

}  // namespace

Json to_json(const Candidate& c) {
  return {{"name", c.name},     {"seconds", maybe(c.seconds)}, {"peak", maybe(c.peak)}, {"fits", c.fits},
          {"chosen", c.chosen}, {"single", c.single},          {"remark", c.remark}};
}

const char* name_of(Kind kind) { return kKindNames[static_cast<size_t>(kind)]; }

Kind kind_of(const std::string& task, bool communication) {
  std::istringstream words(task);
  std::string what, word;
  words >> what;
  if (what == "run") {
    if (communication) return Kind::collective;
    while (words >> word) {
      if (word == "F") return Kind::forward;
      if (word == "B" || word == "BW") return Kind::backward;
      if (word == "W") return Kind::weight_gradient;
    }
    return Kind::other;
  }
  if (what == "send") return words >> word && word == "act" ? Kind::activation_send : Kind::gradient_send;
  if (what == "move" || what == "allocate" || what == "gather") return Kind::move;
  if (what == "reduce" || what == "reduce-scatter" || what == "broadcast") return Kind::reduce;
  if (what == "norm") return Kind::norm;
  if (what == "update") return Kind::update;
  return Kind::other;
}

bool computes(Kind kind) {
  switch (kind) {
    case Kind::forward:
    case Kind::backward:
    case Kind::weight_gradient:
    case Kind::collective:
    case Kind::update:
    case Kind::other:
      return true;
    default:
      return false;
  }
}

nlohmann::ordered_json to_json(const Page& page) {
  Json kinds = Json::array();
  for (const char* name : kKindNames) kinds.push_back(name);
  return {
      {"title", page.title}, {"kinds", kinds}, {"runs", list(page.runs, [](const Run& run) { return to_json(run); })}};
}

std::string ranks_text(const std::vector<int>& ranks) {
  std::string text;
  for (size_t i = 0; i < ranks.size();) {
    size_t end = i + 1;
    while (end < ranks.size() && ranks[end] == ranks[end - 1] + 1) ++end;
    text += fmt::format("{}{}", text.empty() ? "" : ", ", ranks[i]);
    if (end - i > 1) text += fmt::format("{}{}", end - i == 2 ? ", " : "..", ranks[end - 1]);
    i = end;
  }
  return text;
}

}  // namespace switchyard::report
