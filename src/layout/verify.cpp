// Replays move plans on sets of holders instead of numbers.
#include "layout/verify.hpp"

#include <algorithm>
#include <deque>
#include <functional>
#include <limits>
#include <map>
#include <set>
#include <tuple>

#include "base/errors.hpp"
#include "base/parallel.hpp"
#include "layout/exchange.hpp"
#include "layout/overlay.hpp"
#include "layout/rank_shards.hpp"

namespace switchyard::layout {
namespace {

std::string at(const Msg& msg, size_t round) {
  return fmt::format("tensor {} box {} from rank {} to rank {} in round {}", msg.tensor, to_string(msg.box), msg.src,
                     msg.dst, round);
}

/// Texts are made only for messages that are wrong, because there may be millions.
void check_at(bool ok, const char* what, const Msg& msg, size_t round) {
  if (!ok) throw InternalError(fmt::format(fmt::runtime(what), at(msg, round)));
}

/// A message and the round it belongs to.
struct Timed {
  const Msg* msg;
  size_t round;
};

/// The messages of each tensor in order of their rounds.
std::vector<std::vector<Timed>> by_tensor(RoundSpans rounds, size_t tensors) {
  std::vector<std::vector<Timed>> result(tensors);
  for (size_t r = 0; r < rounds.size(); ++r) {
    for (const Msg& msg : rounds[r]) {
      check(static_cast<size_t>(msg.tensor) < tensors, "message of tensor {} of {}", msg.tensor, tensors);
      check_at(!msg.box.empty(), "empty message: {}", msg, r);
      result[static_cast<size_t>(msg.tensor)].push_back({&msg, r});
    }
  }
  return result;
}

/// The tensors to verify: the first one among those with equal maps and messages (such as the layers of a stage).
std::vector<size_t> distinct(const std::vector<std::vector<Timed>>& messages, const std::vector<ShardMap>& from,
                             const std::vector<ShardMap>& to) {
  const auto same_map = [](const ShardMap& a, const ShardMap& b) {
    return a.partials == b.partials && a.shape.size == b.shape.size && a.shards == b.shards;
  };
  const auto same_move = [](const Timed& a, const Timed& b) {
    return a.round == b.round && a.msg->src == b.msg->src && a.msg->dst == b.msg->dst && a.msg->box == b.msg->box;
  };
  std::vector<size_t> chosen;
  for (size_t t = 0; t < to.size(); ++t) {
    if (messages[t].empty() && from[t].shards.empty() && to[t].shards.empty()) continue;  // no rank has it or wants it
    const bool known = std::any_of(chosen.begin(), chosen.end(), [&](size_t other) {
      return same_map(to[t], to[other]) && same_map(from[t], from[other]) &&
             std::equal(messages[t].begin(), messages[t].end(), messages[other].begin(), messages[other].end(),
                        same_move);
    });
    if (!known) chosen.push_back(t);
  }
  return chosen;
}

/// Common data of the proofs of one tensor: its maps, the grid of all boxes, and the number of ranks.
struct Board {
  Board(const std::vector<Timed>& messages, const ShardMap& from_map, const ShardMap& to_map)
      : from(from_map), to(to_map), sources(from_map), targets(to_map), grid(boxes(messages, from_map, to_map)) {
    const auto see = [&](int rank) { ranks = std::max(ranks, static_cast<size_t>(rank) + 1); };
    for (const Shard& shard : from.shards) see(shard.rank);
    for (const Shard& shard : to.shards) see(shard.rank);
    for (const Timed& timed : messages) see(timed.msg->dst);
  }
  static std::vector<Box> boxes(const std::vector<Timed>& messages, const ShardMap& from, const ShardMap& to) {
    std::vector<Box> all;
    for (const Shard& shard : from.shards) all.push_back(shard.box);
    for (const Shard& shard : to.shards) all.push_back(shard.box);
    for (const Timed& timed : messages) all.push_back(timed.msg->box);
    return all;
  }
  size_t index(int rank, size_t cell) const { return static_cast<size_t>(rank) * grid.cells() + cell; }

  /// Whether the box lies inside one shard of the rank.
  bool in_from(int rank, const Box& box) const { return sources.find(rank, box) >= 0; }
  bool in_to(int rank, const Box& box) const { return targets.find(rank, box) >= 0; }

  const ShardMap& from;
  const ShardMap& to;
  RankShards sources, targets;
  Grid grid;
  size_t ranks = 0;
};

constexpr int kNever = std::numeric_limits<int>::max();

/// since[rank, cell]: the first round at whose start the rank has the cell; 0: held in `from`.
void replay_copy_message(const Board& board, const Msg& msg, size_t round, std::vector<int>& since,
                         std::vector<bool>& placed) {
  check_at(board.in_to(msg.dst, msg.box), "{}: not inside one destination shard", msg, round);
  check_at(board.in_from(msg.src, msg.box) || board.in_to(msg.src, msg.box), "{}: not inside one shard of the source",
           msg, round);
  board.grid.each_cell(msg.box, [&](size_t cell) {
    const size_t target = board.index(msg.dst, cell);
    check_at(since[board.index(msg.src, cell)] <= static_cast<int>(round), "{}: the source does not hold it then", msg,
             round);
    if (msg.src == msg.dst) {
      check_at(since[target] == 0 && !placed[target], "{}: a local copy of what was not held before, or placed twice",
               msg, round);
      placed[target] = true;
    } else {
      if (since[target] != kNever)
        throw InternalError(fmt::format("{}: the destination has {} already", at(msg, round), board.grid.cell(cell)));
      since[target] = static_cast<int>(round) + 1;
    }
  });
}

/// Calls verify(tensor) for the tensors that are to be verified; side by side, if there are many messages.
void each_distinct(const std::vector<std::vector<Timed>>& messages, const std::vector<ShardMap>& from,
                   const std::vector<ShardMap>& to, const std::function<void(size_t)>& verify) {
  constexpr size_t kMany = 1 << 16;
  const std::vector<size_t> tensors = distinct(messages, from, to);
  size_t all = 0;
  for (const size_t tensor : tensors) all += messages[tensor].size();
  if (all >= kMany)
    parallel_for(tensors.size(), [&](size_t i) { verify(tensors[i]); });
  else
    std::ranges::for_each(tensors, verify);
}

void replay_copy(const std::vector<Timed>& messages, const ShardMap& from, const ShardMap& to, size_t tensor) {
  const Board board(messages, from, to);
  std::vector<int> since(board.ranks * board.grid.cells(), kNever);
  std::vector<bool> placed(since.size());
  for (const Shard& shard : from.shards) {
    board.grid.each_cell(shard.box, [&](size_t cell) { since[board.index(shard.rank, cell)] = 0; });
  }
  for (const Timed& timed : messages) replay_copy_message(board, *timed.msg, timed.round, since, placed);
  for (const Shard& shard : to.shards) {
    board.grid.each_cell(shard.box, [&](size_t cell) {
      const size_t index = board.index(shard.rank, cell);
      check(since[index] != kNever, "tensor {} box {} never reaches rank {}", tensor, board.grid.cell(cell),
            shard.rank);
      if (since[index] == 0 && !placed[index])
        throw InternalError(fmt::format("tensor {} box {} is not copied on rank {}, which holds it", tensor,
                                        board.grid.cell(cell), shard.rank));
    });
  }
}

/// The partials in a sum, with repetition.
using Sum = std::vector<int>;

void add(Sum& sum, const Sum& more) { sum.insert(sum.end(), more.begin(), more.end()); }

/// Sums as trees of additions, which share parts. A sum is a number; kNothing: of no partials.
class Additions {
 public:
  static constexpr int kNothing = -1;

  int partial(int number) { return make(number, kPartial); }
  int add(int sum, int more) {
    if (sum == kNothing) return more;
    return more == kNothing ? sum : make(sum, more);
  }
  /// How often a sum has each partial.
  void count(int sum, std::vector<int>& times) {
    std::ranges::fill(times, 0);
    open_.assign(1, sum);
    while (!open_.empty()) {
      const int next = open_.back();
      open_.pop_back();
      if (next == kNothing) continue;
      const auto [left, right] = made_[static_cast<size_t>(next)];
      if (right == kPartial)
        ++times[static_cast<size_t>(left)];
      else
        open_.insert(open_.end(), {left, right});
    }
  }

 private:
  static constexpr int kPartial = -2;

  int make(int left, int right) {
    made_.emplace_back(left, right);
    return static_cast<int>(made_.size()) - 1;
  }

  std::vector<std::pair<int, int>> made_;  // both parts; a partial's number and kPartial
  std::vector<int> open_;
};

/// State of a sum's replay: running sums where `from` has a shard, and the sums in `to`.
class SumReplay {
 public:
  SumReplay(const Board& board, size_t tensor)
      : board_(board),
        tensor_(tensor),
        running_(board.ranks * board.grid.cells(), Additions::kNothing),
        holds_(running_.size()),
        result_(board.grid.cells(), Additions::kNothing) {
    for (const Shard& shard : board.from.shards) {
      check(shard.partial >= 0 && shard.partial < board.from.partials, "tensor {} has partial {} of {} on rank {}",
            tensor, shard.partial, board.from.partials, shard.rank);
      board.grid.each_cell(shard.box, [&](size_t cell) {
        const size_t index = board.index(shard.rank, cell);
        check(!holds_[index], "tensor {} box {} is in two source shards of rank {}", tensor, board.grid.cell(cell),
              shard.rank);
        holds_[index] = true;
        running_[index] = sums_.partial(shard.partial);
      });
    }
  }

  void run(std::span<const Timed> messages) {
    std::vector<int> payload;  // what the cells of all messages hold when the round starts
    for (const Timed& timed : messages) {
      const Msg& msg = *timed.msg;
      check_at(board_.in_from(msg.src, msg.box), "{}: not inside one shard of the source", msg, timed.round);
      board_.grid.each_cell(msg.box, [&](size_t cell) { payload.push_back(running_[board_.index(msg.src, cell)]); });
    }
    size_t next = 0;
    for (const Timed& timed : messages) {
      const bool into_result = is_final(*timed.msg, timed.round);
      board_.grid.each_cell(timed.msg->box, [&](size_t cell) {
        int& sum = into_result ? result_[cell] : running_[board_.index(timed.msg->dst, cell)];
        sum = sums_.add(sum, payload[next++]);
      });
    }
  }

  void finish() {
    std::vector<int> times(static_cast<size_t>(board_.from.partials));
    for (const Shard& shard : board_.to.shards) {
      board_.grid.each_cell(shard.box, [&](size_t cell) {
        sums_.count(result_[cell], times);
        const auto wrong = std::ranges::find_if(times, [](int number) { return number != 1; });
        if (wrong != times.end())
          throw InternalError(fmt::format("tensor {} box {} on rank {} has partial {} {} times", tensor_,
                                          board_.grid.cell(cell), shard.rank, wrong - times.begin(), *wrong));
      });
    }
  }

 private:
  /// Whether the message adds into the destination shard, not into the receiver's running sum.
  bool is_final(const Msg& msg, size_t round) const {
    bool held = false;
    board_.grid.each_cell(msg.box, [&](size_t cell) { held = held || holds_[board_.index(msg.dst, cell)]; });
    if (msg.src != msg.dst && held) {
      check_at(board_.in_from(msg.dst, msg.box), "{}: not inside one shard of the destination", msg, round);
      return false;
    }
    check_at(board_.in_to(msg.dst, msg.box), "{}: the destination neither holds nor owns it", msg, round);
    return true;
  }

  const Board& board_;
  size_t tensor_;
  Additions sums_;
  std::vector<int> running_;
  std::vector<bool> holds_;
  std::vector<int> result_;
};

/// State of an exchange's replay: for each rank and cell, the sums in its input, output and scratch memory.
class ExchangeReplay {
 public:
  ExchangeReplay(const Exchange& exchange, const ShardMap& from, const ShardMap& to)
      : exchange_(exchange), from_(from), to_(to), grid_(boxes(exchange, from, to)) {
    for (const Shard& shard : from.shards)
      grid_.each_cell(shard.box, [&](size_t cell) { held_[{shard.rank, Place::input, cell}] = {shard.partial}; });
  }

  void run() {
    for (size_t s = 0; s < exchange_.steps.size(); ++s) run(s);
    check_result();
  }

 private:
  using At = std::tuple<int, Place, size_t>;  // rank, memory, cell

  static std::vector<Box> boxes(const Exchange& exchange, const ShardMap& from, const ShardMap& to) {
    std::vector<Box> all;
    for (const Shard& shard : from.shards) all.push_back(shard.box);
    for (const Shard& shard : to.shards) all.push_back(shard.box);
    for (const Step& step : exchange.steps)
      for (const Part& part : step.parts)
        for (const Piece& piece : part.receives) all.push_back(piece.box);
    return all;
  }

  static std::string name(size_t step, int from, int to, const Box& box) {
    return fmt::format("step {}, box {} from rank {} to rank {}", step, to_string(box), from, to);
  }

  bool has_room(size_t part, int rank, Place place, const Box& box) const {
    const auto in = [&](const ShardMap& map) {
      return std::ranges::any_of(map.shards,
                                 [&](const Shard& shard) { return shard.rank == rank && shard.box.contains(box); });
    };
    if (place == Place::scratch) return std::ranges::count(exchange_.scratch[part], box) == 1;
    return in(place == Place::input ? from_ : to_);
  }

  // Sent values are those from the start of the step.
  void run(size_t number) {
    const Step& step = exchange_.steps[number];
    std::map<std::pair<int, int>, std::deque<std::pair<Box, std::vector<Sum>>>> sent;
    std::set<At> read, written;
    for (size_t p = 0; p < step.parts.size(); ++p) {
      const Part& part = step.parts[p];
      for (const Piece& piece : part.sends) {
        const std::string what = name(number, part.rank, piece.peer, piece.box);
        check(!piece.box.empty() && has_room(p, part.rank, piece.place, piece.box),
              "{}: not inside a shard of the sender", what);
        check(piece.peer != part.rank || piece.place == Place::input, "{}: a local piece that isn't of the input",
              what);
        std::vector<Sum>& sums = sent[{part.rank, piece.peer}].emplace_back(piece.box, std::vector<Sum>{}).second;
        grid_.each_cell(piece.box, [&](size_t cell) {
          const auto held = held_.find({part.rank, piece.place, cell});
          check(held != held_.end(), "{}: the sender does not hold it then", what);
          read.insert({part.rank, piece.place, cell});
          sums.push_back(held->second);
        });
      }
    }
    for (size_t p = 0; p < step.parts.size(); ++p) {
      const Part& part = step.parts[p];
      if (part.zero)
        for (const Shard& shard : to_.shards)
          if (shard.rank == part.rank)
            grid_.each_cell(shard.box, [&](size_t cell) { held_[{part.rank, Place::output, cell}] = {}; });
      for (const Piece& piece : part.receives) {
        const std::string what = name(number, piece.peer, part.rank, piece.box);
        auto& queue = sent[{piece.peer, part.rank}];
        check(!queue.empty() && queue.front().first == piece.box, "{}: nobody sends it, or something else first", what);
        check(piece.place != Place::input && has_room(p, part.rank, piece.place, piece.box),
              "{}: not inside a shard of the receiver", what);
        size_t next = 0;
        grid_.each_cell(piece.box, [&](size_t cell) {
          const At at{part.rank, piece.place, cell};
          check(!read.contains(at), "{}: the receiver sends what lies there in the same step", what);
          check(held_.contains(at) == piece.add, "{}: {}", what,
                piece.add ? "added to nothing" : "it overwrites what is there");
          add(held_[at], queue.front().second[next++]);
        });
        queue.pop_front();
      }
    }
    for (const auto& [ranks, queue] : sent)
      check(queue.empty(), "{}: nobody receives it",
            name(number, ranks.first, ranks.second, queue.empty() ? Box{} : queue.front().first));
  }

  // Checks that each partial is in one partial of `to`, on all its copies.
  void check_result() {
    std::map<std::pair<size_t, int>, Sum> results;  // cell, partial of `to`
    for (const Shard& shard : to_.shards)
      grid_.each_cell(shard.box, [&](size_t cell) {
        const auto held = held_.find({shard.rank, Place::output, cell});
        check(held != held_.end(), "box {} never reaches rank {}", grid_.cell(cell), shard.rank);
        Sum sum = held->second;
        std::ranges::sort(sum);
        const auto known = results.try_emplace({cell, shard.partial}, sum).first;
        check(known->second == sum, "box {} has partials {} on rank {}, {} on others", grid_.cell(cell), sum,
              shard.rank, known->second);
      });
    std::map<size_t, Sum> all;
    for (const auto& [at, sum] : results) add(all[at.first], sum);
    for (auto& [cell, sum] : all)
      for (int partial = 0; partial < from_.partials; ++partial) {
        const auto times = std::ranges::count(sum, partial);
        check(times == 1, "box {} has partial {} {} times", grid_.cell(cell), partial, times);
      }
  }

  const Exchange& exchange_;
  const ShardMap& from_;
  const ShardMap& to_;
  Grid grid_;
  std::map<At, Sum> held_;
};

}  // namespace

void verify_exchange(const Exchange& exchange, const ShardMap& from, const ShardMap& to) {
  ExchangeReplay(exchange, from, to).run();
}

void verify_copied(RoundSpans rounds, const std::vector<ShardMap>& from, const std::vector<ShardMap>& to) {
  check(from.size() == to.size(), "{} tensors become {}", from.size(), to.size());
  const auto messages = by_tensor(rounds, to.size());
  each_distinct(messages, from, to, [&](size_t t) {
    check(from[t].partials == 1 && to[t].partials == 1, "tensor {} is copied with {} partials to {}", t,
          from[t].partials, to[t].partials);
    replay_copy(messages[t], from[t], to[t], t);
  });
}

void verify_summed(RoundSpans rounds, const std::vector<ShardMap>& from, const std::vector<ShardMap>& to) {
  check(from.size() == to.size(), "{} tensors become {}", from.size(), to.size());
  const auto messages = by_tensor(rounds, to.size());
  each_distinct(messages, from, to, [&](size_t t) {
    check(to[t].partials == 1, "tensor {} is summed into {} partials", t, to[t].partials);
    validate(to[t], true);
    const Board board(messages[t], from[t], to[t]);
    SumReplay replay(board, t);
    for (std::span<const Timed> rest = messages[t]; !rest.empty();) {
      const auto end =
          std::find_if(rest.begin(), rest.end(), [&](const Timed& timed) { return timed.round != rest[0].round; });
      replay.run(rest.first(static_cast<size_t>(end - rest.begin())));
      rest = rest.subspan(static_cast<size_t>(end - rest.begin()));
    }
    replay.finish();
  });
}

}  // namespace switchyard::layout
