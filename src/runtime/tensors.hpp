// Tensors for boxes: views of a shard's part, blocks for the fabric, torch's types.
#pragma once

#include <ATen/core/Tensor.h>

#include <span>
#include <string>
#include <utility>
#include <vector>

#include "base/dtype.hpp"
#include "codecs/codec.hpp"
#include "comm/fabric.hpp"
#include "layout/shape.hpp"

namespace switchyard::runtime {

at::ScalarType scalar_type(DType type);
/// The inverse. InternalError for other types than ours.
DType dtype_of(const at::Tensor& tensor);
/// An uninitialised (empty) or zeroed (zeros) tensor of the given sizes.
at::Tensor empty(const std::vector<i64>& size, DType type, const at::Device& device);
at::Tensor zeros(const std::vector<i64>& size, DType type, const at::Device& device);

/// The part `box` of a shard that holds `shard_box`, as a view. Both boxes are in coordinates of the whole tensor.
/// errors  InternalError if `box` is not inside `shard_box`
at::Tensor view_of(const at::Tensor& shard, const layout::Box& shard_box, const layout::Box& box);

/// to = from. Both are views of equal size, dtype and device, with one or two dims, dense in the last.
void copy_view(at::Tensor to, const at::Tensor& from);

/// Fabric operations between tensors, collected into one transaction. The fabric moves host memory: tensors of a device
/// are staged in host buffers, which live as long as this object; run() copies received ones back to the device. Views
/// have one or two dims and are dense in the last.
class Transfer {
 public:
  Transfer(const Transfer&) = delete;  // receives refer to it
  Transfer& operator=(const Transfer&) = delete;
  /// room: bytes on the host into which messages are encoded; undefined where none is.
  explicit Transfer(at::Tensor room = {}) : room_(std::move(room)) {}
  /// A view that is encoded may be overwritten afterwards. InternalError if the room is too small.
  void send(int peer, const at::Tensor& view, codecs::Codec codec = codecs::Codec::none);
  void receive(int peer, at::Tensor view, bool add, codecs::Codec codec = codecs::Codec::none);
  void local(at::Tensor to, const at::Tensor& from, bool add);
  bool empty() const { return ops_.empty(); }
  /// Processor time of this thread that encoding and decoding have taken.
  double coding_seconds() const { return coding_seconds_; }
  /// Runs all operations as one transaction and blocks until they are done. row: the transaction's sequence number on
  /// the channel.
  void run(comm::Fabric& fabric, const comm::Channel& channel, std::string name, i64 row);

 private:
  at::Tensor host_copy(const at::Tensor& view);
  std::span<std::byte> room_for(i64 bytes);
  at::Tensor room_;
  i64 used_ = 0;  // of the room
  double coding_seconds_ = 0;
  std::vector<comm::Op> ops_;
  std::vector<at::Tensor> staged_;
  std::vector<std::pair<at::Tensor, at::Tensor>> returns_;  // device view, host copy
};

}  // namespace switchyard::runtime
