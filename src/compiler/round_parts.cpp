#include "compiler/round_parts.hpp"

#include <algorithm>
#include <memory>
#include <utility>

namespace switchyard::compiler {
namespace {

RoundPart part_of(layout::MessageList::Pattern messages) {
  RoundPart part;
  std::vector<bool> there;
  for (const layout::Msg& m : messages->messages()) {
    const auto last = static_cast<size_t>(std::max(m.src, m.dst));
    if (there.size() <= last) there.resize(last + 1);
    there[static_cast<size_t>(m.src)] = there[static_cast<size_t>(m.dst)] = true;
    if (m.src != m.dst) part.elements += m.box.elements();
  }
  for (size_t rank = 0; rank < there.size(); ++rank)
    if (there[rank]) part.ranks.push_back(static_cast<int>(rank));
  part.messages = std::move(messages);
  return part;
}

}  // namespace

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

std::vector<RoundPart> parts_of(const layout::MessageList::Pattern& pattern) {
  const std::span<const layout::Msg> round = pattern->messages();
  const RoundParts found(round);
  const auto part_at = [&](const layout::Msg& m) {  // the last one: local
    return static_cast<size_t>(found.of(m.src) == RoundParts::kLocal ? found.ranks() : found.of(m.src));
  };
  struct Place {
    size_t first = 0, count = 0;
    bool in_one_piece = true;
    std::vector<layout::Msg> copies{};
  };
  std::vector<Place> places(static_cast<size_t>(found.ranks()) + 1);
  for (size_t i = 0; i < round.size(); ++i) {
    Place& place = places[part_at(round[i])];
    if (place.count == 0) place.first = i;
    if (place.first + place.count++ != i) place.in_one_piece = false;
  }
  for (Place& place : places)
    if (!place.in_one_piece) place.copies.reserve(place.count);
  for (const layout::Msg& m : round)
    if (Place& place = places[part_at(m)]; !place.in_one_piece) place.copies.push_back(m);
  std::vector<RoundPart> parts;
  for (Place& place : places) {
    if (place.count == round.size()) return {part_of(pattern)};
    if (place.count == 0) continue;
    parts.push_back(part_of(place.in_one_piece
                                ? std::make_shared<const layout::MessagePattern>(*pattern, place.first, place.count)
                                : std::make_shared<const layout::MessagePattern>(std::move(place.copies))));
  }
  return parts;
}

const std::vector<RoundPart>& KnownParts::of(const layout::MessageList::Pattern& pattern) {
  const std::lock_guard lock(mutex_);
  const auto [it, fresh] = parts_.try_emplace(pattern.get());
  if (fresh) it->second = parts_of(pattern);
  return it->second;
}

}  // namespace switchyard::compiler
