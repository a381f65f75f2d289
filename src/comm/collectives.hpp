// Collectives on CPU memory, built from Fabric transactions. Ring volume: each rank sends (n-1)/n of the data for
// all-gather and reduce-scatter, twice that for all-reduce. Sums are in rank order (order of channel.ranks) unless
// stated otherwise.
#pragma once

#include <cstring>
#include <span>
#include <string>
#include <type_traits>
#include <vector>

#include "comm/fabric.hpp"

namespace switchyard::comm {

/// The channel of all ranks with this number.
Channel everyone(const Fabric& fabric, int id);

/// Every rank's piece to every rank. pieces[i]: where the piece of channel.ranks[i] lies (own piece: its source);
/// pieces differ in size freely, empty ones send nothing.
void all_gather(Fabric&, const Channel&, const std::string& name, i64 number, std::span<const Block> pieces);
/// Sums pieces over ranks. pieces[i]: this rank's partial of the sum that channel.ranks[i] gets; out: this rank's sum.
/// out may be the rank's own piece. Elements of `dtype`; sums are made in fp32 for bf16.
void reduce_scatter(Fabric&, const Channel&, const std::string& name, i64 number, std::span<const Block> pieces,
                    Block out, DType dtype);
/// Replaces data by the sum over ranks. `elements` of `dtype`, contiguous. If there are fewer elements than ranks, they
/// are summed over pairs of ranks, pairs of pairs and so on, with two messages per doubling, except in bf16.
void all_reduce(Fabric&, const Channel&, const std::string& name, i64 number, void* data, i64 elements, DType dtype);
/// Replaces data by the elementwise maximum over ranks (fp32 or fp64), for softmax statistics.
void all_reduce_max(Fabric&, const Channel&, const std::string& name, i64 number, void* data, i64 elements,
                    DType dtype);
/// Gathers small blobs of any size from all ranks, in rank order (sizes are exchanged first).
std::vector<std::vector<std::byte>> all_gather_blobs(Fabric&, const Channel&, const std::string& name, i64 number,
                                                     std::span<const std::byte> mine);
/// Gathers a plain value from each rank, in rank order.
template <class T>
requires std::is_trivially_copyable_v<T> std::vector<T> all_gather_values(Fabric& fabric, const Channel& channel,
                                                                          const std::string& name, i64 number,
                                                                          const T& mine) {
  std::vector<T> values;
  for (const auto& blob : all_gather_blobs(fabric, channel, name, number, std::as_bytes(std::span(&mine, 1))))
    std::memcpy(&values.emplace_back(), blob.data(), sizeof(T));
  return values;
}
/// Sends the blob of channel.ranks[0] to all ranks.
std::vector<std::byte> broadcast_blob(Fabric&, const Channel&, const std::string& name, i64 number,
                                      std::span<const std::byte> blob);

}  // namespace switchyard::comm
