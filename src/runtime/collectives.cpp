#include "runtime/collectives.hpp"

#include <memory>

#include "base/errors.hpp"

namespace switchyard::runtime {

std::optional<Collectives::Times> Collectives::launch(size_t instr, const KernelCall& call, bool awaited) {
  const bool here = !stream_ || (awaited && flights_.empty());
  const auto reshard = std::make_shared<Reshard>(call);
  Flight& flight = flights_.emplace_back(instr, Flight([reshard] { reshard->run(); }, call.in[0].device())).second;
  if (here) return flight.run();
  flight.start(*stream_);
  return {};
}

std::optional<Collectives::Times> Collectives::wait(size_t instr) {
  check(!flights_.empty() && flights_.front().first == instr, "collective {} isn't the next one to end", instr);
  Flight flight = std::move(flights_.front().second);
  flights_.pop_front();
  if (!flight.started()) return {};
  return flight.wait();
}

}  // namespace switchyard::runtime
