#include "compiler/residuals.hpp"

#include <algorithm>
#include <map>
#include <tuple>
#include <utility>

#include "compiler/wire.hpp"
#include "ir/autodiff.hpp"
#include "layout/overlay.hpp"

namespace switchyard::compiler {
namespace {

using layout::Box;

Box hull(const Box& a, const Box& b) {
  Box box = a;
  for (int d = 0; d < a.dims; ++d) {
    const auto i = static_cast<size_t>(d);
    box.lo[i] = std::min(a.lo[i], b.lo[i]);
    box.hi[i] = std::max(a.hi[i], b.hi[i]);
  }
  return box;
}

bool before(const Box& a, const Box& b) { return std::tie(a.lo, a.hi) < std::tie(b.lo, b.hi); }

// Disjoint boxes, each of which contains the whole of what it has in common with any of `boxes`.
std::vector<Box> joined(const std::vector<Box>& boxes) {
  std::vector<Box> apart;
  for (Box box : boxes) {
    // A box that has grown may reach others.
    const auto takes = [&](const Box& other) {
      if (layout::intersect(box, other).empty()) return false;
      box = hull(box, other);
      return true;
    };
    while (std::erase_if(apart, takes) > 0) {
    }
    apart.push_back(box);
  }
  std::ranges::sort(apart, before);
  return apart;
}

using Sent = std::map<std::pair<int, int>, std::vector<Box>>;  // by rank and parameter

void add(Sent& sent, const switching::SharedRounds& rounds, const codecs::Rule& rule, const Plans& plans) {
  const DType type = plans.graph().precision().state;
  for (const layout::MessageList& round : rounds.rounds)
    for (const layout::Msg& m : round)
      if (codec_of(rule, type, m.box.elements(), m.src, m.dst, plans.cluster()) != codecs::Codec::none)
        sent[{m.src, m.tensor}].push_back(m.box);
}

}  // namespace

std::vector<std::vector<Residual>> residuals_of(const Plans& plans) {
  Sent sent;
  for (size_t s = 0; s < plans.strategies().size(); ++s) {
    const codecs::Rule rule = plans.strategies()[s].strategy.compression.rule_of_gradients();
    if (!rule.feedback || !ir::is_differentiated(plans.graph())) continue;
    const auto strategy = static_cast<int>(s);
    for (const switching::UnitMoves& unit : plans.reduction(strategy).units) add(sent, unit.moves, rule, plans);
    for (const auto& group : plans.of_runs(strategy))
      for (const auto& in_step : group)
        for (const auto& stage : in_step)
          for (const RunTransfers& unit : stage) add(sent, unit.reduce, rule, plans);
  }
  std::vector<std::vector<Residual>> residuals(static_cast<size_t>(plans.cluster().ranks()));
  for (auto& [place, boxes] : sent) {
    std::ranges::sort(boxes, before);
    boxes.erase(std::unique(boxes.begin(), boxes.end()), boxes.end());
    std::vector<Residual>& of_rank = residuals[static_cast<size_t>(place.first)];
    const auto first = static_cast<std::ptrdiff_t>(of_rank.size());
    for (const Box& box : joined(boxes)) of_rank.push_back({.param = place.second, .box = box});
    for (layout::Region& region : layout::overlay(boxes))
      std::find_if(of_rank.begin() + first, of_rank.end(), [&](const Residual& residual) {
        return residual.box.contains(region.box);
      })->sent.push_back(region.box);
  }
  return residuals;
}

std::vector<Box> sent_parts(const std::vector<Residual>& residuals, int param, const Box& box) {
  std::vector<Box> parts;
  for (const Residual& residual : residuals)
    if (residual.param == param)
      for (const Box& sent : residual.sent)
        if (const Box common = layout::intersect(sent, box); !common.empty()) parts.push_back(common);
  return parts;
}

}  // namespace switchyard::compiler
