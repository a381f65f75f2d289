// Between boxes and tensors: views of a shard's part, blocks for the fabric, types of torch.
#pragma once

#include <ATen/core/Tensor.h>

#include "base/dtype.hpp"
#include "comm/fabric.hpp"
#include "layout/shape.hpp"

namespace switchyard::runtime {

at::ScalarType scalar_type(DType type);
/// Uninitialised / zeroed tensor of the given sizes.
at::Tensor empty(const std::vector<i64>& size, DType type, const at::Device& device);
at::Tensor zeros(const std::vector<i64>& size, DType type, const at::Device& device);

/// The part `box` of a shard that holds `shard_box`, as a view (global coordinates).
at::Tensor view_of(const at::Tensor& shard, const layout::Box& shard_box, const layout::Box& box);

/// to = from: views of equal size, dtype and device, one or two dims, dense in the last.
void copy_view(at::Tensor to, const at::Tensor& from);

/// Fabric operations between tensors. The fabric moves host memory: tensors of a device are staged through host
/// buffers, which live as long as the list; finish() brings received ones back. Views of one or two dims, dense in the
/// last.
class Transfer {
 public:
  void send(int peer, const at::Tensor& view);
  void receive(int peer, at::Tensor view, bool add);
  void local(at::Tensor to, const at::Tensor& from, bool add);
  bool empty() const { return ops_.empty(); }
  /// Runs all as one transaction and blocks until done.
  void run(comm::Fabric& fabric, const comm::Channel& channel, std::string name, i64 row);

 private:
  at::Tensor host_copy(const at::Tensor& view);
  std::vector<comm::Op> ops_;
  std::vector<at::Tensor> staged_;
  std::vector<std::pair<at::Tensor, at::Tensor>> returns_;  // device view, host copy
};

}  // namespace switchyard::runtime
