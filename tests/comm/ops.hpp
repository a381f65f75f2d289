// Operations of transactions, in short.
#pragma once

#include <vector>

#include "comm/fabric.hpp"

namespace switchyard::comm {

template <class T>
Block block_of(std::vector<T>& values) {
  return contiguous(values.data(), static_cast<i64>(values.size() * sizeof(T)));
}

inline Op send(int peer, const Block& block, DType dtype = DType::f32) {
  return {Op::Kind::send, peer, block, {}, false, dtype};
}
inline Op recv(int peer, const Block& block, bool add = false, DType dtype = DType::f32) {
  return {Op::Kind::recv, peer, block, {}, add, dtype};
}
inline Op send(int peer, std::vector<float>& values) { return send(peer, block_of(values)); }
inline Op recv(int peer, std::vector<float>& values) { return recv(peer, block_of(values)); }

}  // namespace switchyard::comm
