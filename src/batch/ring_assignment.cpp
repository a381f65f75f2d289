#include "batch/ring_assignment.hpp"

#include <algorithm>
#include <limits>
#include <map>
#include <numeric>
#include <set>
#include <tuple>
#include <utility>

#include "base/errors.hpp"

namespace switchyard::batch {
namespace {

constexpr double kNever = std::numeric_limits<double>::infinity();
constexpr double kNear = 1.005;  // of the bound: not worth another search
constexpr int kMoves = 16;

// The loads that a document of n tokens brings to the ranks of a span.
std::vector<RingLoad> loads_of(i64 tokens, const Span& span, int ranks_per_host) {
  const PlacedDocument document{.doc = 0, .tokens = tokens, .span = span};
  const std::vector<ReceivedKeys> keys = received_keys(document, ranks_per_host);
  std::vector<RingLoad> loads;
  for (int i = 0; i < span.degree; ++i) {
    RingLoad& load = loads.emplace_back();
    for (const Piece& piece : pieces_on(document, span.first + i)) {
      load.tokens += piece.count;
      load.pairs += attention_pairs(piece);
    }
    load.keys = keys[static_cast<std::size_t>(i)];
    load.steps = span.degree - 1;
  }
  return loads;
}

RingLoad sum(RingLoad a, const RingLoad& b) {
  a.tokens += b.tokens;
  a.pairs += b.pairs;
  a.keys.inside += b.keys.inside;
  a.keys.across += b.keys.across;
  a.steps = std::max(a.steps, b.steps);
  return a;
}

class Assigner {
 public:
  Assigner(std::span<const i64> lengths, const Ring& ring) : lengths_(lengths), ring_(ring), order_(lengths.size()) {
    check(ring.ranks >= 1 && ring.ranks_per_host >= 1, "a ring of {} ranks, {} per host", ring.ranks,
          ring.ranks_per_host);
    for (const i64 length : lengths) check(length >= 1, "a document of {} tokens", length);
    std::iota(order_.begin(), order_.end(), std::size_t{0});
    std::ranges::stable_sort(order_, std::greater<>(), [&](std::size_t i) { return lengths[i]; });
    bound_ = bound();
  }

  double bound_seconds() const { return bound_; }

  // No assignment with this degree takes less.
  double least_with_degree(int degree) const {
    double work = 0;
    for (const i64 length : lengths_) work += least(length, 1);
    return work / ring_.ranks + ring_.costs.per_ring_step * (degree - 1);
  }

  // Moves documents away from the slowest rank as long as that helps and the bound is not near.
  void repair(RingAssignment& assignment) {
    for (int moves = 0; moves < kMoves && assignment.seconds > kNear * bound_; ++moves) {
      std::optional<RingAssignment> better = with_a_better_place(assignment);
      if (!better) return;
      assignment = std::move(*better);
    }
  }

  // Documents of which each has the smallest degree that takes at most `limit` seconds on each rank of its span by
  // itself, or else its quickest one; a larger one where there is no room.
  std::optional<RingAssignment> with_limit(double limit) {
    return assigned([&](i64 tokens) { return degree_within(tokens, limit); }, true);
  }

  std::optional<RingAssignment> with_degree(int degree) {
    return assigned([&](i64) { return degree; }, false);
  }

 private:
  // A span, and the time of its slowest rank.
  struct Placement {
    double seconds = kNever;
    Span span;
  };

  // Spans of a degree that keep to hosts.
  bool allowed(int first, int degree) const {
    const int host = ring_.ranks_per_host, end = first + degree;
    if (degree <= host) return first / host == (end - 1) / host;
    return first % host == 0 || end % host == 0;
  }

  // Loads depend on where in its host a span begins, not on the host.
  const std::vector<RingLoad>& loads(i64 tokens, Span span) {
    span.first %= ring_.ranks_per_host;
    if (span.degree <= ring_.ranks_per_host) span.first = 0;
    const auto [it, fresh] = loads_.try_emplace({tokens, span.first, span.degree, span.mirrored});
    if (fresh) it->second = loads_of(tokens, span, ring_.ranks_per_host);
    return it->second;
  }

  // Time of a document by itself: that of the slowest rank, at the best place for it.
  double alone(i64 tokens, int degree) {
    double best = kNever;
    for (int first = 0; first + degree <= ring_.ranks; ++first) {
      if (!allowed(first, degree)) continue;
      double slowest = 0;
      for (const RingLoad& load : loads(tokens, {first, degree, false}))
        slowest = std::max(slowest, load.tokens <= ring_.capacity ? seconds(load, ring_.costs) : kNever);
      best = std::min(best, slowest);
      if (degree <= ring_.ranks_per_host) break;
    }
    return best;
  }

  // No rank of the span may take less on average.
  double least(i64 tokens, int degree) const {
    const double n = static_cast<double>(tokens);
    return (ring_.costs.per_token * n + ring_.costs.per_pair * n * (n + 1) / 2) / degree +
           ring_.costs.per_ring_step * (degree - 1);
  }

  int degree_within(i64 tokens, double limit) {
    const auto [it, fresh] = degree_.try_emplace({tokens, limit}, 1);
    if (!fresh) return it->second;
    double best = kNever;
    for (int degree = 1; degree <= ring_.ranks; ++degree) {
      if (least(tokens, degree) >= std::max(best, limit)) continue;
      const double time = alone(tokens, degree);
      if (time < best) best = time, it->second = degree;
      if (time <= limit) break;
    }
    return it->second;
  }

  double bound() {
    double longest = lengths_.empty() ? 0 : kNever;
    for (int degree = 1; degree <= ring_.ranks && !lengths_.empty(); ++degree)
      if (least(lengths_[order_[0]], degree) < longest) longest = std::min(longest, alone(lengths_[order_[0]], degree));
    return std::max(least_with_degree(1), longest);
  }

  // The least loaded span of a degree for a document, beside what the ranks have. The rest of the ring stays as it is.
  Placement best_place(i64 tokens, int degree, const std::vector<RingLoad>& ranks) {
    Placement best;
    for (int first = 0; first + degree <= ring_.ranks; ++first) {
      if (!allowed(first, degree)) continue;
      for (const bool mirrored : {false, true}) {
        if (mirrored && degree == 1) break;
        const Span span{first, degree, mirrored};
        const std::vector<RingLoad>& added = loads(tokens, span);
        double slowest = 0;
        for (std::size_t i = 0; i < added.size() && slowest < best.seconds; ++i) {
          const RingLoad load = sum(ranks[static_cast<std::size_t>(first) + i], added[i]);
          slowest = std::max(slowest, load.tokens <= ring_.capacity ? seconds(load, ring_.costs) : kNever);
        }
        if (slowest < best.seconds) best = {slowest, span};
      }
    }
    return best;
  }

  void add(RingAssignment& to, std::size_t document, const Span& span) {
    to.span[document] = span;
    const std::vector<RingLoad>& added = loads(lengths_[document], span);
    for (std::size_t i = 0; i < added.size(); ++i) {
      RingLoad& load = to.load[static_cast<std::size_t>(span.first) + i];
      load = sum(load, added[i]);
      to.seconds = std::max(to.seconds, seconds(load, ring_.costs));
    }
  }

  template <class DegreeOf>
  std::optional<RingAssignment> assigned(const DegreeOf& degree_of, bool larger_degrees) {
    RingAssignment out = empty();
    for (const std::size_t i : order_) {
      int degree = degree_of(lengths_[i]);
      Placement place = best_place(lengths_[i], degree, out.load);
      while (larger_degrees && place.seconds == kNever && degree < ring_.ranks)
        place = best_place(lengths_[i], ++degree, out.load);
      if (place.seconds == kNever) return std::nullopt;
      add(out, i, place.span);
    }
    return out;
  }

  RingAssignment empty() const {
    return {.span = std::vector<Span>(lengths_.size()),
            .load = std::vector<RingLoad>(static_cast<std::size_t>(ring_.ranks)),
            .bound = bound_};
  }

  RingAssignment without(RingAssignment from, std::size_t document) {
    const Span span = std::exchange(from.span[document], {.first = 0, .degree = 0});
    const std::vector<RingLoad>& removed = loads(lengths_[document], span);
    for (int rank = span.first; rank < span.first + span.degree; ++rank) {
      RingLoad& load = from.load[static_cast<std::size_t>(rank)];
      const RingLoad& part = removed[static_cast<std::size_t>(rank - span.first)];
      load.tokens -= part.tokens;
      load.pairs -= part.pairs;
      load.keys.inside -= part.keys.inside;
      load.keys.across -= part.keys.across;
      load.steps = 0;
      for (const Span& other : from.span)
        if (rank >= other.first && rank < other.first + other.degree)
          load.steps = std::max(load.steps, other.degree - 1);
    }
    from.seconds = 0;
    for (const RingLoad& load : from.load) from.seconds = std::max(from.seconds, seconds(load, ring_.costs));
    return from;
  }

  // The assignment with one document of its slowest rank on another span; none if that would not be quicker.
  std::optional<RingAssignment> with_a_better_place(const RingAssignment& from) {
    const auto time = [&](const RingLoad& load) { return seconds(load, ring_.costs); };
    const int slowest = static_cast<int>(std::ranges::max_element(from.load, {}, time) - from.load.begin());
    std::optional<RingAssignment> best;
    for (std::size_t i = 0; i < lengths_.size(); ++i) {
      const Span& span = from.span[i];
      if (slowest < span.first || slowest >= span.first + span.degree) continue;
      const RingAssignment rest = without(from, i);
      for (const int degree :
           std::set<int>{1, span.degree / 2, span.degree - 1, span.degree, span.degree + 1, 2 * span.degree}) {
        if (degree < 1 || degree > ring_.ranks) continue;
        const Placement place = best_place(lengths_[i], degree, rest.load);
        if (std::max(place.seconds, rest.seconds) >= (best ? best->seconds : from.seconds)) continue;
        best = rest;
        add(*best, i, place.span);
      }
    }
    return best;
  }

  std::span<const i64> lengths_;
  const Ring& ring_;
  std::vector<std::size_t> order_;  // documents, longest first
  std::map<std::tuple<i64, int, int, bool>, std::vector<RingLoad>> loads_;
  std::map<std::pair<i64, double>, int> degree_;
  double bound_ = 0;
};

// Degrees are tried that take up to these shares of the bound on each rank.
constexpr double kShares[] = {1, 0.9, 0.8, 0.65, 0.5, 0.35, 0.25, 0.15, 0.08};

void keep_quicker(std::optional<RingAssignment>& best, std::optional<RingAssignment> other) {
  if (other && (!best || other->seconds < best->seconds)) best = std::move(other);
}

void try_uniform(std::optional<RingAssignment>& best, Assigner& assigner, int ranks) {
  for (int degree = 1; degree <= ranks; ++degree)
    if (ranks % degree == 0 && (!best || assigner.least_with_degree(degree) < best->seconds))
      keep_quicker(best, assigner.with_degree(degree));
}

}  // namespace

double seconds(const RingLoad& load, const RingCosts& costs) {
  const double receiving = costs.per_key_inside * static_cast<double>(load.keys.inside) +
                           costs.per_key_across * static_cast<double>(load.keys.across);
  return costs.per_token * static_cast<double>(load.tokens) +
         std::max(costs.per_pair * static_cast<double>(load.pairs), receiving) + costs.per_ring_step * load.steps;
}

std::optional<RingAssignment> assign_uniform(std::span<const i64> lengths, const Ring& ring) {
  Assigner assigner(lengths, ring);
  std::optional<RingAssignment> best;
  try_uniform(best, assigner, ring.ranks);
  return best;
}

std::optional<RingAssignment> assign(std::span<const i64> lengths, const Ring& ring) {
  Assigner assigner(lengths, ring);
  std::optional<RingAssignment> best;
  for (const double share : kShares) {
    std::optional<RingAssignment> found = assigner.with_limit(share * assigner.bound_seconds());
    if (found) assigner.repair(*found);
    keep_quicker(best, std::move(found));
    if (best && best->seconds <= kNear * best->bound) break;
  }
  try_uniform(best, assigner, ring.ranks);
  return best;
}

}  // namespace switchyard::batch
