// Tensors for boxes: views of a shard's part, blocks for the fabric, torch's types.
#pragma once

#include <ATen/core/Tensor.h>

#include "base/dtype.hpp"
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
  void send(int peer, const at::Tensor& view);
  void receive(int peer, at::Tensor view, bool add);
  void local(at::Tensor to, const at::Tensor& from, bool add);
  bool empty() const { return ops_.empty(); }
  /// Runs all operations as one transaction and blocks until they are done. row: the transaction's sequence number on
  /// the channel.
  void run(comm::Fabric& fabric, const comm::Channel& channel, std::string name, i64 row);

 private:
  at::Tensor host_copy(const at::Tensor& view);
  std::vector<comm::Op> ops_;
  std::vector<at::Tensor> staged_;
  std::vector<std::pair<at::Tensor, at::Tensor>> returns_;  // device view, host copy
};

}  // namespace switchyard::runtime
