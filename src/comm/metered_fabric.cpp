#include "comm/metered_fabric.hpp"

#include "base/clock.hpp"

namespace switchyard::comm {
namespace {

thread_local double spent = 0;  // seconds of this thread in metered fabrics

// Counts also where a transaction throws.
class Meter {
 public:
  ~Meter() { spent += thread_seconds() - began_; }

 private:
  const double began_ = thread_seconds();
};

}  // namespace

void MeteredFabric::run(const Channel& channel, const Transaction& transaction) {
  const Meter meter;
  inner().run(channel, transaction);
}

double computing_seconds() { return thread_seconds() - spent; }

}  // namespace switchyard::comm
