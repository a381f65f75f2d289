// A fabric that serves collectives of groups, by messages of another one, and counts them.
#pragma once

#include <algorithm>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <utility>
#include <vector>

#include "comm/block.hpp"
#include "comm/forwarding_fabric.hpp"

namespace switchyard::runtime {

/// What ranks that share it have called, and on which groups.
struct CallsSeen {
  std::mutex mutex;
  std::map<GroupCall, int> calls;
  std::set<comm::Channel> groups;
};

class ServingFabric final : public comm::ForwardingFabric {
 public:
  ServingFabric(std::unique_ptr<comm::Fabric> inner, std::vector<comm::Channel> groups, bool with_sums, CallsSeen& seen)
      : ForwardingFabric(std::move(inner)), groups_(std::move(groups)), with_sums_(with_sums), seen_(seen) {}

  bool serves(int channel, GroupCall call, std::span<const int> ranks) const override {
    return (with_sums_ || !sums(call)) && std::ranges::any_of(groups_, [&](const comm::Channel& group) {
             return group.id == channel && std::ranges::equal(group.ranks, ranks);
           });
  }
  bool serves_any() const override { return !groups_.empty(); }

  void run(const comm::Channel& channel, const comm::Transaction& transaction) override {
    comm::Transaction messages{transaction.name, transaction.number, transaction.ops};
    for (const comm::Collective& c : transaction.collectives) {
      add(messages.ops, c);
      const std::lock_guard lock(seen_.mutex);
      ++seen_.calls[c.call];
      seen_.groups.insert({channel.id, c.ranks});
    }
    inner().run(channel, messages);
  }

 private:
  using Kind = comm::Op::Kind;

  // Sums in the order of the group.
  void add(std::vector<comm::Op>& ops, const comm::Collective& c) const {
    const bool gathers = c.call == GroupCall::all_gather;
    bool adds = c.add;
    for (size_t i = 0; i < c.ranks.size(); ++i) {
      const comm::Block& given = c.in[c.in.size() == 1 ? 0 : i];
      const comm::Block& to = c.out[c.out.size() == 1 ? 0 : i];
      if (c.ranks[i] != rank()) {
        ops.push_back({.kind = Kind::send, .peer = c.ranks[i], .block = given, .dtype = c.dtype});
        ops.push_back({.kind = Kind::recv, .peer = c.ranks[i], .block = to, .add = adds, .dtype = c.dtype});
      } else if (!gathers || !comm::overlap(given, to)) {
        ops.push_back({.kind = Kind::local, .block = to, .source = given, .add = adds, .dtype = c.dtype});
      }
      adds = adds || !gathers;
    }
  }

  std::vector<comm::Channel> groups_;
  bool with_sums_;
  CallsSeen& seen_;
};

}  // namespace switchyard::runtime
