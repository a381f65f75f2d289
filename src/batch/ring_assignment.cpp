#include "batch/ring_assignment.hpp"

#include <algorithm>
#include <array>
#include <limits>
#include <map>
#include <numeric>
#include <set>
#include <utility>

#include "base/errors.hpp"

namespace switchyard::batch {
namespace {

constexpr double kNever = std::numeric_limits<double>::infinity();
constexpr double kNear = 1.005;  // results within 0.5% of the bound end the search
constexpr int kMoves = 16;

// The loads that a document of n tokens brings to the ranks of a span: chunks as of pieces_on, all keys that come
// counted as from the own host unless the span has several.
std::vector<RingLoad> loads_of(i64 tokens, const Span& span, int ranks_per_host) {
  const i64 chunks = 2 * i64{span.degree};
  std::vector<RingLoad> loads(static_cast<std::size_t>(span.degree), {.steps = span.degree - 1});
  for (int i = 0; i < span.degree; ++i) {
    RingLoad& load = loads[static_cast<std::size_t>(i)];
    const int place = span.mirrored ? span.degree - 1 - i : i;
    i64 seen = 0;
    for (const i64 chunk : {i64{place}, chunks - 1 - place}) {
      const i64 first = tokens * chunk / chunks, end = tokens * (chunk + 1) / chunks;
      load.tokens += end - first;
      load.pairs += (end * (end + 1) - first * (first + 1)) / 2;
      if (end > first) seen = end;
    }
    load.keys.inside = seen - load.tokens;
  }
  const int last = span.first + span.degree - 1;
  if (span.first / ranks_per_host == last / ranks_per_host) return loads;
  const auto keys = received_keys({.doc = 0, .tokens = tokens, .span = span}, ranks_per_host);
  for (std::size_t i = 0; i < loads.size(); ++i) loads[i].keys = keys[i];
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
  Assigner(std::span<const i64> lengths, const Ring& ring)
      : lengths_(lengths),
        ring_(ring),
        known_(ring.known ? ring.known : std::make_shared<KnownLoads>()),
        order_(lengths.size()) {
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
    const auto [it, fresh] =
        known_->try_emplace({tokens, span.first, span.degree, span.mirrored, ring_.ranks_per_host});
    if (fresh) it->second = loads_of(tokens, span, ring_.ranks_per_host);
    return it->second;
  }

  // Time of a document by itself: that of the slowest rank, at the best place for it.
  double alone(i64 tokens, int degree) {
    if (degree == 1) return tokens <= ring_.capacity ? seconds(whole(tokens), ring_.costs) : kNever;
    double best = kNever;
    // Loads depend on where in its host a span begins, and one over several hosts begins or ends at an edge.
    const int host = ring_.ranks_per_host, other = degree > host ? (host - degree % host) % host : 0;
    for (const int first : {0, other}) {
      if (first + degree > ring_.ranks) continue;
      double slowest = 0;
      for (const RingLoad& load : loads(tokens, {first, degree, false}))
        slowest = std::max(slowest, load.tokens <= ring_.capacity ? seconds(load, ring_.costs) : kNever);
      best = std::min(best, slowest);
      if (other == 0) break;
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

  static RingLoad whole(i64 tokens) { return {.tokens = tokens, .pairs = tokens * (tokens + 1) / 2}; }

  Placement best_rank(i64 tokens, const std::vector<RingLoad>& ranks) const {
    Placement best;
    const RingLoad added = whole(tokens);
    for (std::size_t rank = 0; rank < ranks.size(); ++rank) {
      const RingLoad load = sum(ranks[rank], added);
      const double time = load.tokens <= ring_.capacity ? seconds(load, ring_.costs) : kNever;
      if (time < best.seconds) best = {time, {static_cast<int>(rank), 1}};
    }
    return best;
  }

  // The least loaded span of a degree for a document, beside what the ranks have. The rest of the ring stays as it is.
  Placement best_place(i64 tokens, int degree, const std::vector<RingLoad>& ranks) {
    if (degree == 1) return best_rank(tokens, ranks);
    Placement best;
    const bool in_one_host = degree <= ring_.ranks_per_host;  // then all spans bring the same loads
    std::array<const std::vector<RingLoad>*, 2> known{};
    for (int first = 0; first + degree <= ring_.ranks; ++first) {
      if (!allowed(first, degree)) continue;
      for (const bool mirrored : {false, true}) {
        const Span span{first, degree, mirrored};
        const std::vector<RingLoad>*& added = known[mirrored ? 1 : 0];
        if (!added || !in_one_host) added = &loads(tokens, span);
        double slowest = 0;
        for (std::size_t i = 0; i < added->size() && slowest < best.seconds; ++i) {
          const RingLoad load = sum(ranks[static_cast<std::size_t>(first) + i], (*added)[i]);
          slowest = std::max(slowest, load.tokens <= ring_.capacity ? seconds(load, ring_.costs) : kNever);
        }
        if (slowest < best.seconds) best = {slowest, span};
      }
    }
    return best;
  }

  void add(RingAssignment& to, std::size_t document, const Span& span) {
    to.span[document] = span;
    const auto put = [&](std::size_t rank, const RingLoad& added) {
      to.load[rank] = sum(to.load[rank], added);
      to.seconds = std::max(to.seconds, seconds(to.load[rank], ring_.costs));
    };
    const auto first = static_cast<std::size_t>(span.first);
    if (span.degree == 1) return put(first, whole(lengths_[document]));
    const std::vector<RingLoad>& added = loads(lengths_[document], span);
    for (std::size_t i = 0; i < added.size(); ++i) put(first + i, added[i]);
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

  // The loads without a document.
  std::vector<RingLoad> without(const RingAssignment& from, std::size_t document) {
    const Span& span = from.span[document];
    const std::vector<RingLoad>& removed = loads(lengths_[document], span);
    std::vector<RingLoad> rest = from.load;
    for (int rank = span.first; rank < span.first + span.degree; ++rank) {
      RingLoad& load = rest[static_cast<std::size_t>(rank)];
      const RingLoad& part = removed[static_cast<std::size_t>(rank - span.first)];
      load.tokens -= part.tokens;
      load.pairs -= part.pairs;
      load.keys.inside -= part.keys.inside;
      load.keys.across -= part.keys.across;
      if (span.degree == 1 || load.steps > part.steps) continue;  // others decide its steps
      load.steps = 0;
      for (std::size_t i = 0; i < from.span.size(); ++i)
        if (const Span& other = from.span[i]; i != document && rank >= other.first && rank < other.first + other.degree)
          load.steps = std::max(load.steps, other.degree - 1);
    }
    return rest;
  }

  double slowest_of(const std::vector<RingLoad>& loads) const {
    double slowest = 0;
    for (const RingLoad& load : loads) slowest = std::max(slowest, seconds(load, ring_.costs));
    return slowest;
  }

  // The assignment with one document of its slowest rank on another span; none if that would not be quicker.
  std::optional<RingAssignment> with_a_better_place(const RingAssignment& from) {
    const auto time = [&](const RingLoad& load) { return seconds(load, ring_.costs); };
    const int slowest = static_cast<int>(std::ranges::max_element(from.load, {}, time) - from.load.begin());
    struct Move {
      std::size_t document = 0;
      Span span{};
      std::vector<RingLoad> rest{};
    };
    std::optional<Move> best;
    double least = from.seconds;
    std::set<i64> tried;  // whole documents of equal length
    for (std::size_t i = 0; i < lengths_.size(); ++i) {
      const Span& span = from.span[i];
      if (slowest < span.first || slowest >= span.first + span.degree) continue;
      if (span.degree == 1 && !tried.insert(lengths_[i]).second) continue;
      std::vector<RingLoad> rest = without(from, i);
      const double others = slowest_of(rest);
      if (others >= least) continue;
      std::array degrees{1, span.degree / 2, span.degree - 1, span.degree, span.degree + 1, 2 * span.degree};
      std::ranges::sort(degrees);
      for (std::size_t d = 0; d < degrees.size(); ++d) {
        const int degree = degrees[d];
        if (degree < 1 || degree > ring_.ranks || (d > 0 && degree == degrees[d - 1])) continue;
        const Placement place = best_place(lengths_[i], degree, rest);
        if (std::max(place.seconds, others) >= least) continue;
        least = std::max(place.seconds, others);
        best = {i, place.span, rest};
      }
    }
    if (!best) return std::nullopt;
    RingAssignment moved = from;
    moved.load = std::move(best->rest);
    moved.seconds = slowest_of(moved.load);
    add(moved, best->document, best->span);
    return moved;
  }

  std::span<const i64> lengths_;
  const Ring& ring_;
  std::shared_ptr<KnownLoads> known_;
  std::vector<std::size_t> order_;  // documents, longest first
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
