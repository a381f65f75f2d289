// The documents of a batch as a rank reads them.
#pragma once

#include <vector>

#include "data/sources.hpp"
#include "runtime/feeds.hpp"

namespace switchyard::train {

/// The tokens of those sequences that this rank reads; the others stay empty. vocabulary: tokens.
/// errors  UserError naming corpus, document and position of a token outside the vocabulary
runtime::Documents read_documents(const std::vector<data::Source>& sources,
                                  const std::vector<data::Sequence>& sequences, const std::vector<bool>& read,
                                  i64 vocabulary);
/// Source of each sequence, and where a source is masked which labels count of those that this rank reads.
runtime::Labels read_labels(const std::vector<data::Source>& sources, const std::vector<data::Sequence>& sequences,
                            const std::vector<bool>& read);

}  // namespace switchyard::train
