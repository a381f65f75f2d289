#include "planner/coding.hpp"

#include <initializer_list>

#include "simulator/coding_time.hpp"

namespace switchyard::planner {
namespace {

constexpr i64 kMany = i64{1} << 20;  // elements, beside which blocks and messages are no matter

std::optional<Coding> coding_over(codecs::Codec codec, DType type, const cluster::Hardware& hardware,
                                  const cluster::LinkClass& link, bool feedback) {
  const auto bytes = static_cast<double>(kMany * size_of(type));
  simulator::CodingTime time(hardware.device);
  time.add(codec, type, kMany, 0, 1, feedback);
  const Coding coding{static_cast<double>(codecs::encoded_bytes(codec, type, kMany)) / bytes, time.in_turn() / bytes};
  const double saved = (1 - coding.size) * link.shared_by / link.bandwidth.count;
  return saved > coding.seconds ? std::optional(coding) : std::nullopt;
}

}  // namespace

Codings codings_of(codecs::Codec codec, DType type, const config::Compression& policy,
                   const cluster::Hardware& hardware) {
  Codings codings;
  if (codecs::is_exact(codec, type)) return codings;
  const bool feedback = codec == policy.gradients && policy.rule_of_gradients().feedback;
  if (policy.links == config::CompressedLinks::all)
    codings.inside = coding_over(codec, type, hardware, hardware.intra_host, feedback);
  if (hardware.inter_host) codings.across = coding_over(codec, type, hardware, *hardware.inter_host, feedback);
  return codings;
}

config::Compression worthwhile(const config::Compression& allowed, const Precision& precision,
                               const cluster::Hardware& hardware) {
  using codecs::Codec;
  config::Compression left = allowed;
  left.keys = left.switches = Codec::none;
  bool any = false, inside = false;
  const auto keep = [&](Codec config::Compression::*role, DType type) {
    const Codings codings = codings_of(allowed.*role, type, allowed, hardware);
    if (!codings.inside && !codings.across) left.*role = Codec::none;
    any = any || left.*role != Codec::none;
    inside = inside || codings.inside;
  };
  keep(&config::Compression::gradients, precision.state);
  for (const auto role : {&config::Compression::pipeline, &config::Compression::activations,
                          &config::Compression::ulysses, &config::Compression::gathers})
    keep(role, precision.compute);
  if (!any) return {};
  if (!inside) left.links = config::CompressedLinks::hosts;
  return left;
}

}  // namespace switchyard::planner
