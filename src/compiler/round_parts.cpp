#include "compiler/round_parts.hpp"

#include <algorithm>

namespace switchyard::compiler {

RoundParts::RoundParts(std::span<const layout::Msg> round) {
  int ranks = 0;
  for (const layout::Msg& m : round) ranks = std::max({ranks, m.src + 1, m.dst + 1});
  part_.assign(static_cast<size_t>(ranks), kNone);
  for (const layout::Msg& m : round) {
    if (m.src == m.dst) continue;
    const int x = leader(m.src), y = leader(m.dst);
    part_[static_cast<size_t>(std::max(x, y))] = std::min(x, y);
  }
  for (int rank = 0; rank < ranks; ++rank)
    if (of(rank) >= 0) part_[static_cast<size_t>(rank)] = leader(rank);
  for (const layout::Msg& m : round)
    if (of(m.src) == kNone) part_[static_cast<size_t>(m.src)] = kLocal;
}

int RoundParts::of(int rank) const { return rank < 0 || rank >= ranks() ? kNone : part_[static_cast<size_t>(rank)]; }

// Shortens the way to it.
int RoundParts::leader(int rank) {
  const auto up = [&](int of) -> int& { return part_[static_cast<size_t>(of)]; };
  if (up(rank) < 0) up(rank) = rank;
  while (up(rank) != rank) rank = up(rank) = up(up(rank));
  return rank;
}

}  // namespace switchyard::compiler
