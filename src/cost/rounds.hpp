// Messages that wait for each other.
#pragma once

#include <span>
#include <vector>

#include "cost/exchange.hpp"

namespace switchyard::cost {

/// Until the last round has ended: such as those of a hot switch, unit by unit.
/// formula  a round starts when all rounds before it have ended that have one of its ranks, and takes as long as
///          exchange_over says; all rounds together take at least as long as their messages would if they started
///          together, as rounds of other ranks share ports
/// errors   as exchange_over
Seconds rounds_over(const cluster::Hardware& hardware, const cluster::Cluster& placement,
                    std::span<const std::vector<Message>> rounds);

}  // namespace switchyard::cost
