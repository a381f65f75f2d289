// Rates of codecs, measured on all ranks at once.
#pragma once

#include <map>
#include <string>

#include "base/clock.hpp"
#include "cluster/hardware.hpp"
#include "train/measurement_barrier.hpp"

namespace switchyard::train {

/// Rates of the codecs that a job may have, by their names: with fp32 numbers without structure, in messages of 256
/// KiB, and what a message of 256 bytes takes beyond its share. Every rank of the fabric calls it and gets the same
/// result.
std::map<std::string, cluster::CodecRates> profile_codecs(MeasurementBarrier& barrier, SecondsClock clock);

}  // namespace switchyard::train
