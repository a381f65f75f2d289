#include "train/weights.hpp"

#include <ATen/Parallel.h>
#include <ATen/ops/from_blob.h>

#include <algorithm>
#include <cmath>
#include <numbers>
#include <set>
#include <utility>
#include <vector>

#include "base/errors.hpp"
#include "base/random.hpp"
#include "runtime/tensors.hpp"

namespace switchyard::train {
namespace {

std::uint64_t hash_of(const std::string& name, i64 seed) {
  std::uint64_t hash = mix(static_cast<std::uint64_t>(seed));
  for (const char c : name) hash = mix(hash ^ static_cast<unsigned char>(c));
  return hash;
}

struct Normals {
  double cosine = 0, sine = 0;
};

// Box-Muller on pairs of elements: 2k takes the cosine, 2k + 1 the sine.
Normals normals(std::uint64_t stream, i64 pair) {
  const std::uint64_t bits = mix(stream ^ mix(static_cast<std::uint64_t>(pair)));
  const double u = (static_cast<double>(bits >> 32) + 0.5) * 0x1p-32,
               v = static_cast<double>(bits & 0xffffffffu) * 0x1p-32;
  const double radius = std::sqrt(-2 * std::log(u)), angle = 2 * std::numbers::pi * v;
  return {radius * std::cos(angle), radius * std::sin(angle)};
}

// Elements of a unit of work of a thread.
constexpr i64 kGrain = 1 << 14;

template <class T>
void draw(const ir::Param& param, std::uint64_t stream, const layout::Box& box, T* out) {
  const i64 columns = param.shape.dims() == 2 ? param.shape.size[1] : 1;
  const i64 first = box.dims == 2 ? box.lo[1] : 0, end = box.dims == 2 ? box.hi[1] : 1, width = end - first;
  if (width <= 0) return;
  at::parallel_for(box.lo[0], box.hi[0], std::max<i64>(1, kGrain / width), [&](i64 begin_row, i64 end_row) {
    T* next = out + (begin_row - box.lo[0]) * width;
    i64 drawn = -1;  // the pair
    Normals pair;
    for (i64 row = begin_row; row < end_row; ++row)
      for (i64 index = row * columns + first; index < row * columns + end; ++index) {
        if (param.init.std <= 0) {
          *next++ = static_cast<T>(param.init.constant);
          continue;
        }
        if (std::exchange(drawn, index >> 1) != index >> 1) pair = normals(stream, index >> 1);
        *next++ = static_cast<T>(param.init.std * (index & 1 ? pair.sine : pair.cosine));
      }
  });
}

at::Tensor tensor_of(const files::TensorFolder& folder, const std::string& name) {
  const files::TensorInfo& info = folder.info(name);
  at::ScalarType type = at::kFloat;
  switch (info.dtype) {
    case files::FileDType::f64:
      type = at::kDouble;
      break;
    case files::FileDType::f32:
      type = at::kFloat;
      break;
    case files::FileDType::bf16:
      type = at::kBFloat16;
      break;
    case files::FileDType::f16:
      type = at::kHalf;
      break;
    default:
      user_error("{}: tensor \"{}\" is {}; weights are F64, F32, BF16 or F16. Export the model again.",
                 folder.path().string(), name, files::name_of(info.dtype));
  }
  // The mapped file is only read; from_blob takes a pointer to non-const.
  void* data = const_cast<std::byte*>(folder.data(name).data());
  return at::from_blob(data, info.shape, at::TensorOptions().dtype(type));
}

// The name of a tensor in the files: those of a bare base model leave out the first part of the name.
std::string name_in(const files::TensorFolder& folder, const std::string& name) {
  if (folder.contains(name)) return name;
  const std::string bare = name.substr(name.find('.') + 1);
  return folder.contains(bare) ? bare : name;
}

constexpr const char* kHead = "lm_head.weight";

/// Files that older versions of transformers wrote have masks and frequencies, which follow from config.json.
bool is_constant(const std::string& name) {
  return name.ends_with("rotary_emb.inv_freq") || name.ends_with(".attn.bias") || name.ends_with(".attn.masked_bias");
}

/// A tensor of the transformer or the head that the model has no place for, such as a bias, is part of a function that
/// config.json does not tell. What is beside them (a value head) is not.
void refuse_leftovers(const ir::Graph& graph, const files::TensorFolder& folder) {
  const auto part_of = [](const std::string& name) { return name.substr(0, name.find('.')); };
  std::set<std::string> read{kHead}, parts{part_of(kHead)};
  for (const ir::Param& param : graph.params()) {
    const std::string name = name_in(folder, param.file.name);
    read.insert(name);
    parts.insert(part_of(name));
  }
  std::vector<std::string> left = folder.names();
  std::erase_if(left, [&](const std::string& name) {
    return read.contains(name) || is_constant(name) || !parts.contains(part_of(name));
  });
  if (left.empty()) return;
  user_error(
      "{}: config.json describes a model without tensor \"{}\"{}. Use the config.json that belongs to these weights.",
      folder.path().string(), left.front(),
      left.size() == 1 ? "" : fmt::format(" and {} further ones that are there", left.size() - 1));
}

/// Some versions of transformers compute with such a head, others with the embedding.
void refuse_another_head(const ir::Graph& graph, const files::TensorFolder& folder) {
  const auto is_head = [](const ir::Param& param) { return param.file.name == kHead; };
  if (!folder.contains(kHead) || std::ranges::any_of(graph.params(), is_head)) return;
  const auto table = std::ranges::find_if(graph.params(), [](const ir::Param& param) {
    return !param.roles.empty() && param.roles.front() == layout::DimRole::vocabulary;
  });
  check(table != graph.params().end(), "a model without an embedding");
  const at::Tensor embedding = from_file_tensor(*table, folder), head = tensor_of(folder, kHead);
  if (head.sizes() == embedding.sizes() && head.to(embedding.scalar_type()).equal(embedding)) return;
  user_error(
      "{}: config.json ties the head to the embedding (tie_word_embeddings), but \"{}\" differs from \"{}\". Set it to "
      "false there to train both, or remove the tensor.",
      folder.path().string(), kHead, name_in(folder, table->file.name));
}

}  // namespace

runtime::Home::Initial random_weights(const ir::Graph& graph, i64 seed) {
  return [&graph, seed](int index, const layout::Box& box, at::Tensor values) {
    const ir::Param& param = graph.param(index);
    const std::uint64_t stream = hash_of(param.name, seed);
    if (values.scalar_type() == at::kDouble)
      draw(param, stream, box, values.data_ptr<double>());
    else
      draw(param, stream, box, values.data_ptr<float>());
  };
}

at::Tensor from_file_tensor(const ir::Param& param, const files::TensorFolder& folder) {
  const std::string name = name_in(folder, param.file.name);
  at::Tensor tensor = tensor_of(folder, name);
  const auto wrong_shape = [&] {
    user_error(
        "{}: tensor \"{}\" has shape {}, but config.json asks for {} here. Use the config.json that belongs to these "
        "weights.",
        folder.path().string(), name, std::vector<i64>(tensor.sizes().begin(), tensor.sizes().end()), param.shape.size);
  };
  if (tensor.dim() != param.shape.dims()) wrong_shape();
  if (param.file.transposed) tensor = tensor.t();
  const bool packed = param.file.first > 0 || param.file.name != param.name;
  if (packed ? tensor.size(0) < param.file.first + param.shape.size[0] : tensor.size(0) != param.shape.size[0])
    wrong_shape();
  if (param.shape.dims() == 2 && tensor.size(1) != param.shape.size[1]) wrong_shape();
  return tensor.narrow(0, param.file.first, param.shape.size[0]);
}

runtime::Home::Initial weights_from(const ir::Graph& graph, const std::string& folder) {
  const auto tensors = std::make_shared<files::TensorFolder>(files::TensorFolder::open(folder));
  for (const ir::Param& param : graph.params())
    from_file_tensor(param, *tensors);  // all errors before anything is allocated
  refuse_leftovers(graph, *tensors);
  refuse_another_head(graph, *tensors);
  return [&graph, tensors](int index, const layout::Box& box, at::Tensor values) {
    const ir::Param& param = graph.param(index);
    values.copy_(runtime::view_of(from_file_tensor(param, *tensors), layout::whole(param.shape.size), box));
  };
}

std::uint64_t fingerprint_of_weights(const std::string& folder) {
  Fingerprint fingerprint;
  files::TensorFolder::open(folder).add_to(fingerprint);
  return fingerprint.value();
}

}  // namespace switchyard::train
