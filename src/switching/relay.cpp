#include "switching/relay.hpp"

#include <algorithm>
#include <map>
#include <memory>

#include "base/errors.hpp"
#include "switching/share.hpp"

namespace switchyard::switching {
namespace {

using cluster::Cluster;

bool contains(const std::vector<int>& ranks, int rank) {
  return std::find(ranks.begin(), ranks.end(), rank) != ranks.end();
}

int host_of(const Cluster& cluster, int rank) { return cluster.host[static_cast<size_t>(rank)]; }

/// Ranks by their hosts, in the given order on each.
std::map<int, std::vector<int>> by_host(const std::vector<int>& ranks, const Cluster& cluster) {
  std::map<int, std::vector<int>> hosts;
  for (const int rank : ranks) hosts[host_of(cluster, rank)].push_back(rank);
  return hosts;
}

/// A bundle's delivery to one host: to one of its ranks that lack the bundle (crossing), or inside the host.
struct Delivery {
  const Bundle* bundle;
  std::vector<int> senders, receivers;
};

/// Arrivals of one host from others: demands on its receivers, each with its delivery and the sender's part.
struct Arrivals {
  std::vector<Demand> demands;
  std::vector<const Delivery*> deliveries;
  std::vector<Part> parts;
};

/// Delivers inside hosts: every receiver gets the whole bundle, and the senders share the deliveries.
void deliver_inside(const std::map<int, std::vector<Delivery>>& hosts, std::vector<BundleRange>& ranges) {
  for (const auto& [host, deliveries] : hosts) {
    std::vector<Demand> demands;
    std::vector<const Bundle*> what;
    for (const Delivery& delivery : deliveries) {
      for (const int receiver : delivery.receivers) {
        demands.push_back({.elements = delivery.bundle->elements, .candidates = delivery.senders, .partner = receiver});
        what.push_back(delivery.bundle);
      }
    }
    const auto parts = share(demands);
    for (size_t d = 0; d < demands.size(); ++d) {
      for (const Part& part : parts[d])
        ranges.push_back(
            {.src = part.rank, .dst = demands[d].partner, .bundle = what[d], .begin = part.begin, .end = part.end});
    }
  }
}

/// Delivers across hosts: the senders share all crossings. On each host, the receivers share what comes from each
/// sender, and pass it on.
void deliver_across(const std::vector<Delivery>& crossings, const Cluster& cluster, std::vector<BundleRange>& crossing,
                    std::vector<BundleRange>& passing_on) {
  std::vector<Demand> sending;
  for (const Delivery& delivery : crossings) {
    const bool evenly = delivery.senders.size() <= delivery.receivers.size();  // else many small parts
    sending.push_back({.elements = delivery.bundle->elements, .candidates = delivery.senders, .evenly = evenly});
  }
  const auto sent = share(sending);
  std::map<int, Arrivals> arrivals;
  for (size_t c = 0; c < crossings.size(); ++c) {
    Arrivals& at_host = arrivals[host_of(cluster, crossings[c].receivers[0])];
    for (const Part& part : sent[c]) {
      at_host.demands.push_back(
          {.elements = part.end - part.begin, .candidates = crossings[c].receivers, .partner = part.rank});
      at_host.deliveries.push_back(&crossings[c]);
      at_host.parts.push_back(part);
    }
  }
  for (const auto& [host, at_host] : arrivals) {
    const auto received = share(at_host.demands);
    for (size_t d = 0; d < at_host.demands.size(); ++d) {
      const Delivery& delivery = *at_host.deliveries[d];
      for (const Part& part : received[d]) {
        const i64 begin = at_host.parts[d].begin + part.begin, end = at_host.parts[d].begin + part.end;
        crossing.push_back(
            {.src = at_host.parts[d].rank, .dst = part.rank, .bundle = delivery.bundle, .begin = begin, .end = end});
        for (const int other : delivery.receivers) {
          if (other != part.rank)
            passing_on.push_back(
                {.src = part.rank, .dst = other, .bundle = delivery.bundle, .begin = begin, .end = end});
        }
      }
    }
  }
}

/// The contribution of one host: for each partial that it contributes, the ranks that hold it.
struct Contribution {
  std::map<int, std::vector<int>> holders;  // by partial
};
using Contributions = std::map<int, Contribution>;  // by host

/// Finds which host contributes each partial of a bundle.
class Contributors {
 public:
  explicit Contributors(const Cluster& cluster) : cluster_(cluster) {}

  /// The owner's host if it has a copy, else one that contributes anyway, else the first that has it.
  std::shared_ptr<const Contributions> of(const Bundle& bundle, int owner) {
    if (holders_ != bundle.holders || partials_ != bundle.partials) see(bundle);
    if (every_one_) return every_one_;
    Contributions hosts;
    const int home = host_of(cluster_, owner);
    for (const auto& [partial, places] : places_) {
      if (places.contains(home)) {
        assign(partial, home, hosts);
      } else if (places.size() == 1) {
        assign(partial, places.begin()->first, hosts);
      }
    }
    for (const auto& [partial, places] : places_) {
      if (places.contains(home)) continue;
      const auto known =
          std::find_if(places.begin(), places.end(), [&](const auto& place) { return hosts.contains(place.first); });
      assign(partial, known == places.end() ? places.begin()->first : known->first, hosts);
    }
    return std::make_shared<const Contributions>(std::move(hosts));
  }

 private:
  void assign(int partial, int host, Contributions& hosts) const {
    hosts[host].holders[partial] = places_.at(partial).at(host);
  }

  /// Bundles of equal holders follow each other: they differ in owners.
  void see(const Bundle& bundle) {
    holders_ = bundle.holders;
    partials_ = bundle.partials;
    places_.clear();
    every_one_.reset();
    for (size_t i = 0; i < holders_.size(); ++i)
      places_[partials_[i]][host_of(cluster_, holders_[i])].push_back(holders_[i]);
    if (std::ranges::any_of(places_, [](const auto& place) { return place.second.size() > 1; })) return;
    Contributions hosts;
    for (const auto& [partial, places] : places_) assign(partial, places.begin()->first, hosts);
    every_one_ = std::make_shared<const Contributions>(std::move(hosts));
  }

  const Cluster& cluster_;
  std::vector<int> holders_, partials_;                    // those of the last bundle
  std::map<int, std::map<int, std::vector<int>>> places_;  // its holders by partial, by host
  std::shared_ptr<const Contributions> every_one_;         // whoever owns it: each partial is on one host
};

/// The partials of one host (not the owner's) for one bundle.
struct HostSum {
  const Bundle* bundle;
  std::shared_ptr<const Contributions> all;
  const Contribution* from;
};

class ReduceRounds {
 public:
  explicit ReduceRounds(const Cluster& cluster)
      : cluster_(cluster), contributors_(cluster), sent_(static_cast<size_t>(cluster.ranks())) {}

  void plan(const Bundle& bundle) {
    check(bundle.takers.size() == 1, "gradients reduced to {} owners", bundle.takers.size());
    const int owner = bundle.takers[0];
    const auto all = contributors_.of(bundle, owner);
    for (const auto& [host, from] : *all) {
      if (host == host_of(cluster_, owner)) {
        gather(bundle, from, owner, 0, bundle.elements);
        if (contains(bundle.holders, owner))
          local_.push_back({.src = owner, .dst = owner, .bundle = &bundle, .begin = 0, .end = bundle.elements});
      } else {
        sums_[host].push_back({&bundle, all, &from});
      }
    }
  }

  RangeRounds finish() {
    for (const auto& [host, sums] : sums_) add_on_host(sums);
    return {std::move(inside_), std::move(across_), std::move(local_)};
  }

 private:
  /// Round 0: brings the partials of a host to `to`, each from the holder that has sent least.
  void gather(const Bundle& bundle, const Contribution& from, int to, i64 begin, i64 end) {
    for (const auto& [partial, ranks] : from.holders) {
      if (contains(ranks, to)) continue;
      const int source = layout::nearest_sender(ranks, to, cluster_, sent_);
      sent_[static_cast<size_t>(source)] += end - begin;
      inside_.push_back({.src = source, .dst = to, .bundle = &bundle, .begin = begin, .end = end});
    }
  }

  /// The ranks of a host share the bundles that they add and send on. A lone partial needs no sum on its host and
  /// crosses in round 0.
  void add_on_host(const std::vector<HostSum>& sums) {
    std::vector<Demand> demands;
    for (const HostSum& sum : sums) {
      Demand demand{.elements = sum.bundle->elements, .candidates = {}};
      for (const auto& [partial, ranks] : sum.from->holders)
        demand.candidates.insert(demand.candidates.end(), ranks.begin(), ranks.end());
      std::sort(demand.candidates.begin(), demand.candidates.end());
      demands.push_back(std::move(demand));
    }
    const auto parts = share(demands);
    for (size_t m = 0; m < sums.size(); ++m) {
      const bool alone = sums[m].from->holders.size() == 1;
      for (const Part& part : parts[m]) {
        gather(*sums[m].bundle, *sums[m].from, part.rank, part.begin, part.end);
        (alone ? inside_ : across_)
            .push_back({.src = part.rank,
                        .dst = sums[m].bundle->takers[0],
                        .bundle = sums[m].bundle,
                        .begin = part.begin,
                        .end = part.end});
      }
    }
  }

  const Cluster& cluster_;
  Contributors contributors_;
  std::vector<i64> sent_;
  std::map<int, std::vector<HostSum>> sums_;  // by host
  std::vector<BundleRange> inside_, across_, local_;
};

}  // namespace

RangeRounds relay_switch(std::span<const Bundle> all, const Cluster& cluster) {
  std::vector<Delivery> crossings;
  std::map<int, std::vector<Delivery>> inside;
  std::vector<BundleRange> first, second;
  for (const Bundle& bundle : all) {
    std::vector<int> lacking;
    for (const int taker : bundle.takers) {
      if (contains(bundle.holders, taker)) {
        first.push_back({.src = taker, .dst = taker, .bundle = &bundle, .begin = 0, .end = bundle.elements});
      } else {
        lacking.push_back(taker);
      }
    }
    auto near = by_host(bundle.holders, cluster);
    for (auto& [host, receivers] : by_host(lacking, cluster)) {
      if (near.contains(host)) {
        inside[host].push_back({&bundle, near.at(host), std::move(receivers)});
      } else {
        crossings.push_back({&bundle, bundle.holders, std::move(receivers)});
      }
    }
  }
  deliver_inside(inside, first);
  deliver_across(crossings, cluster, first, second);
  return {std::move(first), std::move(second)};
}

RangeRounds relay_reduce(std::span<const Bundle> all, const Cluster& cluster) {
  ReduceRounds rounds(cluster);
  for (const Bundle& bundle : all) rounds.plan(bundle);
  return rounds.finish();
}

}  // namespace switchyard::switching
