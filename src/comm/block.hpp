// Copying and adding blocks: rows of bytes in memory, of any geometry, equal in total bytes. Those on a device are left
// to it; InternalError if only one of two is.
#pragma once

#include <span>

#include "comm/fabric.hpp"

namespace switchyard::comm {

/// to := from. Row lengths may differ, total bytes agree; InternalError with both if not. Blocks don't overlap. Copies
/// of 1 MiB and more bypass the caches where the processor supports it.
void copy_block(const Block& to, const Block& from);
/// to += from, elements of `dtype`; bf16 adds in fp32 and rounds to nearest even, integers wrap.
/// Rows hold whole elements and start at multiples of the element size; InternalError otherwise.
void add_block(const Block& to, const Block& from, DType dtype);
/// to := sum of the partials in their order, bf16 summed in fp32 and rounded once. Each has `elements` contiguous
/// elements; `to` may be one of them.
void sum_bf16(std::byte* to, std::span<const std::byte* const> partials, i64 elements);
/// Sets every byte.
void fill_block(const Block& block, unsigned char byte);
/// Whether rows follow each other without a gap.
bool is_contiguous(const Block& block);
/// Whether the two share a byte.
bool overlap(const Block& a, const Block& b);

}  // namespace switchyard::comm
