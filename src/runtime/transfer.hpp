// Fabric operations between tensors.
#pragma once

#include <ATen/core/Tensor.h>

#include <span>
#include <string>
#include <utility>
#include <vector>

#include "codecs/codec.hpp"
#include "comm/fabric.hpp"

namespace switchyard::runtime {

/// Operations between views of tensors, collected into one transaction. Views have one or two dims and are dense in the
/// last. Those of a device go by pinned host memory if the fabric moves host memory only, or if the message is encoded:
/// then the host waits for the device once.
class Transfer {
 public:
  Transfer(const Transfer&) = delete;  // receives refer to it
  Transfer& operator=(const Transfer&) = delete;
  /// room: bytes on the host into which messages are encoded; undefined where none is.
  explicit Transfer(at::Tensor room = {}) : room_(std::move(room)) {}
  /// A view that is encoded may be overwritten afterwards. residual: undefined, or of the view's size, on the host:
  /// what encoding lost of earlier messages, which is added to the view's values, and then what it loses of those
  /// (codecs::encode). InternalError if the room is too small.
  void send(int peer, const at::Tensor& view, codecs::Codec codec = codecs::Codec::none,
            const at::Tensor& residual = {});
  void receive(int peer, at::Tensor view, bool add, codecs::Codec codec = codecs::Codec::none);
  void local(at::Tensor to, const at::Tensor& from, bool add);
  /// A collective of a group, which the fabric serves on this channel (comm::Collective). No codec is used beside it.
  void collective(GroupCall call, const std::vector<int>& ranks, const std::vector<at::Tensor>& in,
                  const std::vector<at::Tensor>& out, bool add);
  bool empty() const { return parts_.empty() && collectives_.empty(); }
  /// Processor time of this thread that encoding and decoding have taken.
  double coding_seconds() const { return coding_seconds_; }
  /// Runs all operations as one transaction. Blocks until they are done; for views of a device, until what the calling
  /// thread's stream is given next comes after them. number: the transaction's on the channel.
  void run(comm::Fabric& fabric, const comm::Channel& channel, std::string name, i64 number);

 private:
  /// An operation, with the view that it sends or receives, and the source of a local one.
  struct Part {
    comm::Op op;
    at::Tensor view, source{};
    codecs::Codec codec = codecs::Codec::none;
    at::Tensor landing{};  // staged: what is sent by the host, or arrives
  };
  std::span<std::byte> room_for(i64 bytes);
  void decode_to(Part& part, const at::Tensor& to, bool add);
  std::vector<comm::Op> direct();
  std::vector<comm::Op> staged(bool moves_device_memory);
  void finish_staged();

  at::Tensor room_;
  i64 used_ = 0;  // used bytes of the room
  double coding_seconds_ = 0;
  std::vector<Part> parts_;
  std::vector<comm::Collective> collectives_;
};

}  // namespace switchyard::runtime
