#include "cost/rounds.hpp"

#include <algorithm>

namespace switchyard::cost {

Seconds rounds_over(const cluster::Hardware& hardware, const cluster::Cluster& placement,
                    std::span<const std::vector<Message>> rounds) {
  std::vector<double> free(static_cast<size_t>(placement.ranks()), 0);  // seconds until a rank's rounds have ended
  std::vector<Message> all;
  double last = 0;
  for (const std::vector<Message>& round : rounds) {
    double end = 0;
    const auto each_rank = [&](const auto& visit) {
      for (const Message& message : round)
        if (message.from != message.to)
          for (const int rank : {message.from, message.to}) visit(free[static_cast<size_t>(rank)]);
    };
    each_rank([&](double& ready) { end = std::max(end, ready); });
    end += exchange_over(hardware, placement, round).time.count;
    each_rank([&](double& ready) { ready = end; });
    last = std::max(last, end);
    all.insert(all.end(), round.begin(), round.end());
  }
  return {std::max(last, exchange_over(hardware, placement, all).time.count)};
}

}  // namespace switchyard::cost
