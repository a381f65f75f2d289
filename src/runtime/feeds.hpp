// Inputs of a micro-batch: its documents' tokens in the order that the plan's pieces state.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <optional>
#include <vector>

#include "batch/key_exchange.hpp"
#include "batch/step_plan.hpp"
#include "kernels/flash_attention.hpp"

namespace switchyard::runtime {

/// The tokens of the documents of one global batch, by their numbers in the plan. Those that this rank doesn't read
/// (compiler/documents_read.hpp) may be empty.
using Documents = std::vector<std::vector<std::int32_t>>;

/// The labels of a global batch, as far as tokens don't give them. counts[d]: for each token of document d
/// whether it counts in the loss as a label, 1 or 0; empty: all do. source[d]: the part of the loss to which document d
/// belongs, below `sources`; empty: all belong to the only one.
struct Labels {
  std::vector<std::vector<std::uint8_t>> counts{};
  std::vector<int> source{};
  int sources = 1;
};

/// A part of a document: the tokens of the whole document on all ring ranks, and the positions in it. Padding is a
/// document of length 0.
struct DocumentPart {
  i64 length = 0, first = 0, count = 0;
  bool operator==(const DocumentPart&) const = default;
};

/// Each tensor has shape (T): ids, positions, labels (-1: none) i64; weights in the state dtype, 1 / valid_tokens where
/// a label counts, else 0; keys i64, a random number for each token, undefined unless a seed is given; sources i64, the
/// part of the loss to which the token's document belongs, 0 for padding, whose loss is 0, undefined if there is one
/// part. ids, labels, weights and sources mean nothing in a stage that doesn't read tokens.
struct MicroBatchFeeds {
  i64 T = 0, squared_lengths = 0, longest = 0;  // longest: the document with most tokens up to its last one here
  at::Tensor ids, positions, labels, weights, keys, sources;
  /// Only of a model that rotates by document: positions are then numbers of rows, T in these parts.
  std::vector<DocumentPart> parts;
  /// By step of attention, as batch::SeenKeys has them. With one ring rank there is one step.
  std::vector<std::vector<kernels::AttentionBlock>> blocks;
  /// The same as calls of flash attention; no steps: the device has none.
  std::vector<kernels::FlashCalls> flash;
  /// With several ring ranks: which keys pass between them, and which of them this is.
  batch::KeyExchange ring_keys;
  int ring_rank = 0;
};

/// The keys of tokens are a function of this, the document's number in the step, and the position.
struct DropoutSeed {
  std::uint64_t seed = 0;
  i64 step = 0;
};

/// How feeds are made. reads_tokens: whether the stage has inputs that depend on tokens. seed: for models with dropout.
/// flash, padded: whether the device's kernels of flash attention are to be called, and for long documents those of
/// attention with padding. ring_hosts, passing: of the ring ranks that
/// pass keys to one another, none: all are on one; and how they do it. by_document: whether rotary frequencies depend
/// on the document's length.
struct FeedSettings {
  DType state = DType::f32;
  at::Device device{at::kCPU};
  bool reads_tokens = true, flash = false, padded = false, by_document = false;
  std::optional<DropoutSeed> seed = std::nullopt;
  int ring_rank = 0;
  std::vector<int> ring_hosts{};
  KeyPassing passing = KeyPassing::gather;
};

/// Inputs of a micro-batch on a ring rank. The label of a part's last token is the document's next one.
/// errors  InternalError if parts of a document are missing, or pieces don't add up to T
MicroBatchFeeds feeds_of(const batch::MicroBatch& micro_batch, const Documents& documents, const Labels& labels,
                         i64 valid_tokens, const FeedSettings& settings);

}  // namespace switchyard::runtime
