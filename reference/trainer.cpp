// The reference trainer: a small LLaMA trained by plain loops in double, for comparison with everything else.
//
// It shares no code with the rest of the project, uses only the standard library, and prefers the obvious loop to the fast one.
// Every backward pass is derived by hand next to its loop. Documents are computed one after another, so that nothing can leak
// from one to another, and there is no batch dimension, no parallelism and no stored graph.
//
// Shapes: T tokens of one document, H hidden, N query heads, K key/value heads, D head size, F feed-forward, V vocabulary.
// All arrays are row-major; a weight is (out, in), as Hugging Face stores it; `a += b` on a gradient means it accumulates.
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iomanip>
#include <iostream>
#include <iterator>
#include <map>
#include <sstream>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

namespace {

namespace fs = std::filesystem;
using Floats = std::vector<double>;
using Shape = std::vector<size_t>;

[[noreturn]] void fail(const std::string& message) { throw std::runtime_error(message); }

// ---------------------------------------------------------------- files: JSON, safetensors

/// JSON as a flat table: {"a": {"b": [7, "x"]}} is a/b/0 = 7, a/b/1 = x. A null is left out.
using Json = std::map<std::string, std::string>;

/// Recursive descent over one text; fails with the place of the first character it doesn't expect.
class JsonReader {
 public:
  JsonReader(std::string text, std::string where) : text_(std::move(text)), where_(std::move(where)) {}

  Json read() {
    read_value("");
    if (skip_blanks() != '\0' || at_ < text_.size()) wrong();
    return table_;
  }

 private:
  [[noreturn]] void wrong() const { fail(where_ + ": not valid JSON at character " + std::to_string(at_)); }
  char skip_blanks() {
    at_ = std::min(text_.find_first_not_of(" \t\r\n", at_), text_.size());
    return text_.c_str()[at_];
  }
  bool take(char c) {
    if (skip_blanks() != c) return false;
    ++at_;
    return true;
  }
  void need(char c) {
    if (!take(c)) wrong();
  }

  void read_value(const std::string& path) {
    const std::string prefix = path.empty() ? "" : path + "/";
    const char first = skip_blanks();
    if (take('{')) {
      if (take('}')) return;
      do {
        const std::string key = read_text();
        need(':');
        read_value(prefix + key);
      } while (take(','));
      need('}');
    } else if (take('[')) {
      if (take(']')) return;
      size_t n = 0;
      do read_value(prefix + std::to_string(n++));
      while (take(','));
      need(']');
    } else if (first == '"') {
      table_[path] = read_text();
    } else {
      const size_t end = std::min(text_.find_first_of(",]} \t\r\n", at_), text_.size());
      const std::string word = text_.substr(at_, end - at_);
      if (word.empty()) wrong();
      if (word != "null") table_[path] = word;
      at_ = end;
    }
  }

  std::string read_text() {
    need('"');
    const size_t end = text_.find('"', at_);  // names here need no escapes
    if (end == std::string::npos) wrong();
    const size_t begin = std::exchange(at_, end + 1);
    return text_.substr(begin, end - begin);
  }

  std::string text_;
  std::string where_;
  size_t at_ = 0;
  Json table_;
};

std::string read_file(const fs::path& path) {
  std::ifstream in(path, std::ios::binary);
  if (!in) fail("cannot read " + path.string());
  return {std::istreambuf_iterator<char>(in), {}};
}

void write_file(const fs::path& path, const std::string& bytes) {
  std::ofstream out(path, std::ios::binary);
  out.write(bytes.data(), static_cast<std::streamsize>(bytes.size()));
  if (!out.flush()) fail("cannot write " + path.string());
}

size_t count(const Shape& shape) {
  size_t n = 1;
  for (const size_t s : shape) n *= s;
  return n;
}

/// A named array as files hold it. Integers are kept as double, exact below 2^53.
struct Tensor {
  std::string dtype;  // F32, F64 or I64
  Shape shape;
  Floats values;
};
using Tensors = std::map<std::string, Tensor>;

template <class T>
Floats from_bytes(const char* bytes, size_t n) {
  std::vector<T> raw(n);
  std::memcpy(raw.data(), bytes, n * sizeof(T));
  Floats out(n);
  for (size_t i = 0; i < n; ++i) out[i] = static_cast<double>(raw[i]);
  return out;
}

template <class T>
void append_bytes(std::string& out, const Floats& values) {
  for (const double value : values) {
    const T raw = static_cast<T>(value);
    char bytes[sizeof(T)];
    std::memcpy(bytes, &raw, sizeof(T));
    out.append(bytes, sizeof(T));
  }
}

double get_number(const Json& json, const std::string& key, const std::string& where) {
  const auto it = json.find(key);
  char* end = nullptr;
  const double value = it == json.end() ? 0 : std::strtod(it->second.c_str(), &end);
  if (!end || *end) fail(where + ": needs a number \"" + key + "\"");
  return value;
}

/// safetensors: u64 header length, JSON header with dtype, shape and data_offsets per tensor, then the data.
Tensors read_safetensors(const fs::path& path) {
  const std::string where = path.string(), file = read_file(path), ending = "/dtype";
  uint64_t header = 0;
  if (file.size() < 8) fail(where + ": too short for a safetensors file");
  std::memcpy(&header, file.data(), 8);
  if (header > file.size() - 8) fail(where + ": cut off inside its header");
  const Json index = JsonReader(file.substr(8, header), where).read();
  Tensors tensors;
  for (const auto& [key, dtype] : index) {
    if (!key.ends_with(ending)) continue;
    const std::string name = key.substr(0, key.size() - ending.size());
    const auto number = [&](const std::string& entry) { return static_cast<size_t>(get_number(index, name + entry, where)); };
    Tensor tensor{dtype, {}, {}};
    for (size_t i = 0; index.contains(name + "/shape/" + std::to_string(i)); ++i)
      tensor.shape.push_back(number("/shape/" + std::to_string(i)));
    const size_t n = count(tensor.shape), begin = number("/data_offsets/0"), end = number("/data_offsets/1");
    if (end > file.size() - 8 - header || begin > end || end - begin != n * (dtype == "F32" ? 4 : 8))
      fail(where + ": " + name + " is cut off or has a wrong size");
    const char* data = file.data() + 8 + header + begin;
    if (dtype == "F32") tensor.values = from_bytes<float>(data, n);
    else if (dtype == "F64") tensor.values = from_bytes<double>(data, n);
    else if (dtype == "I64") tensor.values = from_bytes<int64_t>(data, n);
    else fail(where + ": " + name + " has dtype " + dtype + "; F32, F64 and I64 are known");
    tensors[name] = std::move(tensor);
  }
  return tensors;
}

void write_safetensors(const fs::path& path, const Tensors& tensors) {
  std::string header = "{", data;
  for (const auto& [name, tensor] : tensors) {
    const size_t begin = data.size();
    if (tensor.dtype == "F32") append_bytes<float>(data, tensor.values);
    else if (tensor.dtype == "F64") append_bytes<double>(data, tensor.values);
    else append_bytes<int64_t>(data, tensor.values);
    header += (header.size() > 1 ? ",\"" : "\"") + name + "\":{\"dtype\":\"" + tensor.dtype + "\",\"shape\":[";
    for (size_t i = 0; i < tensor.shape.size(); ++i) header += (i ? "," : "") + std::to_string(tensor.shape[i]);
    header += "],\"data_offsets\":[" + std::to_string(begin) + "," + std::to_string(data.size()) + "]}";
  }
  header += "}";
  header.resize((header.size() + 7) / 8 * 8, ' ');  // data starts on 8 bytes
  const uint64_t length = header.size();
  std::string file(8, '\0');
  std::memcpy(file.data(), &length, 8);
  write_file(path, file + header + data);
}

// ---------------------------------------------------------------- model: sizes and parameters

struct Config {
  size_t hidden = 0, layers = 0, heads = 0, kv_heads = 0, head_size = 0, ffn = 0, vocab = 0;
  bool tied = false;
  double norm_eps = 1e-5;
  double rope_theta = 10000;
  // llama3 rope scaling; factor 0 means none.
  double rope_factor = 0, rope_low = 1, rope_high = 4, rope_original = 0;
};

void check_sizes(const Config& c, const std::string& where) {
  for (const size_t size : {c.hidden, c.layers, c.heads, c.kv_heads, c.head_size, c.ffn, c.vocab})
    if (size == 0) fail(where + ": every model size must be at least 1");
  if (c.heads % c.kv_heads) fail(where + ": query heads must be a multiple of key/value heads");
  if (c.head_size % 2) fail(where + ": the head size must be even for rotary positions");
}

Config read_config(const fs::path& path) {
  const std::string where = path.string();
  Json json = JsonReader(read_file(path), where).read();
  if (json["model_type"] != "llama") fail(where + ": only model_type \"llama\" is known here");
  if (json["attention_bias"] == "true" || json["mlp_bias"] == "true") fail(where + ": biases are not known here");
  const auto size = [&](const char* key) { return static_cast<size_t>(get_number(json, key, where)); };
  Config c;
  c.hidden = size("hidden_size");
  c.layers = size("num_hidden_layers");
  c.heads = size("num_attention_heads");
  c.kv_heads = json.contains("num_key_value_heads") ? size("num_key_value_heads") : c.heads;
  c.head_size = json.contains("head_dim") ? size("head_dim") : c.hidden / std::max<size_t>(c.heads, 1);
  c.ffn = size("intermediate_size");
  c.vocab = size("vocab_size");
  c.tied = json["tie_word_embeddings"] == "true";
  c.norm_eps = get_number(json, "rms_norm_eps", where);
  c.rope_theta = get_number(json, "rope_theta", where);
  if (json.lower_bound("rope_scaling/") != json.lower_bound("rope_scaling0")) {  // '0' follows '/'
    if (json["rope_scaling/rope_type"] != "llama3") fail(where + ": only rope_type \"llama3\" is known here");
    c.rope_factor = get_number(json, "rope_scaling/factor", where);
    c.rope_low = get_number(json, "rope_scaling/low_freq_factor", where);
    c.rope_high = get_number(json, "rope_scaling/high_freq_factor", where);
    c.rope_original = get_number(json, "rope_scaling/original_max_position_embeddings", where);
  }
  check_sizes(c, where);
  return c;
}

std::string to_json(const Config& c) {
  std::ostringstream out;
  out << std::setprecision(17) << std::showpoint;  // 10000.0 rather than 10000 for what is a real number
  out << R"({"architectures": ["LlamaForCausalLM"], "model_type": "llama", "attention_bias": false, "mlp_bias": false,)"
      << R"( "hidden_act": "silu", "dtype": "float32", "max_position_embeddings": 4096, "hidden_size": )" << c.hidden
      << R"(, "num_hidden_layers": )" << c.layers << R"(, "num_attention_heads": )" << c.heads
      << R"(, "num_key_value_heads": )" << c.kv_heads << R"(, "head_dim": )" << c.head_size << R"(, "intermediate_size": )" << c.ffn
      << R"(, "vocab_size": )" << c.vocab << R"(, "rms_norm_eps": )" << c.norm_eps << R"(, "rope_theta": )" << c.rope_theta
      << R"(, "tie_word_embeddings": )" << (c.tied ? "true" : "false");
  if (c.rope_factor != 0)
    out << R"(, "rope_scaling": {"rope_type": "llama3", "factor": )" << c.rope_factor << R"(, "low_freq_factor": )" << c.rope_low
        << R"(, "high_freq_factor": )" << c.rope_high << R"(, "original_max_position_embeddings": )"
        << static_cast<size_t>(c.rope_original) << "}";
  out << "}\n";
  return out.str();
}

/// One weight with its gradient and AdamW moments, all of the same shape.
struct Parameter {
  std::string name;
  Shape shape;
  Floats w, g, m, v;

  void make(std::string its_name, Shape its_shape) {
    name = std::move(its_name);
    shape = std::move(its_shape);
    for (Floats* values : {&w, &g, &m, &v}) values->assign(count(shape), 0.0);
  }
};

struct Layer {
  Parameter norm1;       // (H)
  Parameter q, k, v, o;  // (N D, H), (K D, H), (K D, H), (H, N D)
  Parameter norm2;       // (H)
  Parameter gate, up;    // (F, H)
  Parameter down;        // (H, F)
};

struct Model {
  explicit Model(const Config& c) : config(c), layers(c.layers) {
    embedding.make("model.embed_tokens.weight", {c.vocab, c.hidden});
    for (size_t i = 0; i < c.layers; ++i) {
      const std::string prefix = "model.layers." + std::to_string(i) + ".";
      Layer& l = layers[i];
      l.norm1.make(prefix + "input_layernorm.weight", {c.hidden});
      l.q.make(prefix + "self_attn.q_proj.weight", {c.heads * c.head_size, c.hidden});
      l.k.make(prefix + "self_attn.k_proj.weight", {c.kv_heads * c.head_size, c.hidden});
      l.v.make(prefix + "self_attn.v_proj.weight", {c.kv_heads * c.head_size, c.hidden});
      l.o.make(prefix + "self_attn.o_proj.weight", {c.hidden, c.heads * c.head_size});
      l.norm2.make(prefix + "post_attention_layernorm.weight", {c.hidden});
      l.gate.make(prefix + "mlp.gate_proj.weight", {c.ffn, c.hidden});
      l.up.make(prefix + "mlp.up_proj.weight", {c.ffn, c.hidden});
      l.down.make(prefix + "mlp.down_proj.weight", {c.hidden, c.ffn});
    }
    norm.make("model.norm.weight", {c.hidden});
    if (!c.tied) untied_head.make("lm_head.weight", {c.vocab, c.hidden});
  }

  /// (V, H). A tied embedding is this same parameter, so that both its gradients accumulate in one place.
  Parameter& head() { return config.tied ? embedding : untied_head; }

  /// Each parameter once.
  std::vector<Parameter*> parameters() {
    std::vector<Parameter*> all{&embedding};
    for (Layer& l : layers)
      for (Parameter* p : {&l.norm1, &l.q, &l.k, &l.v, &l.o, &l.norm2, &l.gate, &l.up, &l.down}) all.push_back(p);
    all.push_back(&norm);
    if (!config.tied) all.push_back(&untied_head);
    return all;
  }

  Config config;
  Parameter embedding;
  std::vector<Layer> layers;
  Parameter norm;
  Parameter untied_head;
};

Model read_model(const fs::path& folder) {
  Model model(read_config(folder / "config.json"));
  const fs::path path = folder / "model.safetensors";
  Tensors tensors = read_safetensors(path);
  for (Parameter* p : model.parameters()) {
    const auto it = tensors.find(p->name);
    if (it == tensors.end()) fail(path.string() + ": no tensor " + p->name);
    if (it->second.shape != p->shape) fail(path.string() + ": " + p->name + " has another shape than config.json says");
    p->w = std::move(it->second.values);
  }
  return model;
}

/// splitmix64, and Box-Muller on top of it.
class Random {
 public:
  explicit Random(uint64_t seed) : state_(seed) {}
  uint64_t bits() {
    uint64_t z = (state_ += 0x9e3779b97f4a7c15ULL);
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9ULL;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebULL;
    return z ^ (z >> 31);
  }
  double uniform() { return (static_cast<double>(bits() >> 11) + 0.5) * 0x1p-53; }  // in (0, 1)
  double normal() {
    const double radius = std::sqrt(-2 * std::log(uniform()));
    return radius * std::cos(2 * M_PI * uniform());
  }
  size_t below(size_t n) { return static_cast<size_t>(bits() % n); }

 private:
  uint64_t state_;
};

/// Weights that leave no part of the model idle: matrices about 1.5 / sqrt(in), norm gains about 1. Rounded to float, so that
/// a float32 file holds them exactly.
Model random_model(const Config& config, Random& random) {
  Model model(config);
  for (Parameter* p : model.parameters()) {
    const bool matrix = p->shape.size() == 2;
    const double scale = matrix ? 1.5 / std::sqrt(static_cast<double>(p->shape[1])) : 0.1;
    for (double& w : p->w) w = static_cast<float>((matrix ? 0 : 1) + scale * random.normal());
  }
  return model;
}

// ---------------------------------------------------------------- the pieces, each with its derivative

/// y (T, O) = x (T, I) w^T, w (O, I).
Floats linear(const Floats& x, const Floats& w, size_t T, size_t I, size_t O) {
  Floats y(T * O);
  for (size_t t = 0; t < T; ++t)
    for (size_t o = 0; o < O; ++o) {
      double sum = 0;
      for (size_t i = 0; i < I; ++i) sum += x[t * I + i] * w[o * I + i];
      y[t * O + o] = sum;
    }
  return y;
}

/// dx (T, I) += dy w  and  dw (O, I) += dy^T x: the two factors of each product, times its dy.
void linear_backward(Floats& dx, Floats& dw, const Floats& dy, const Floats& x, const Floats& w, size_t T, size_t I, size_t O) {
  for (size_t t = 0; t < T; ++t)
    for (size_t o = 0; o < O; ++o) {
      const double d = dy[t * O + o];
      for (size_t i = 0; i < I; ++i) {
        dx[t * I + i] += d * w[o * I + i];
        dw[o * I + i] += d * x[t * I + i];
      }
    }
}

/// y = w x r with r = (mean_H(x^2) + eps)^(-1/2); x, y (T, H), w (H), r (T).
Floats rms_norm(Floats& r, const Floats& x, const Floats& w, size_t T, size_t H, double eps) {
  Floats y(T * H);
  r.assign(T, 0);
  for (size_t t = 0; t < T; ++t) {
    double sum = 0;
    for (size_t i = 0; i < H; ++i) sum += x[t * H + i] * x[t * H + i];
    r[t] = 1 / std::sqrt(sum / static_cast<double>(H) + eps);
    for (size_t i = 0; i < H; ++i) y[t * H + i] = w[i] * x[t * H + i] * r[t];
  }
  return y;
}

/// dr/dx_j = -r^3 x_j / H, hence  dx_j += r w_j dy_j - r^3 x_j / H * sum_i(w_i dy_i x_i)  and  dw_i += dy_i x_i r.
void rms_norm_backward(Floats& dx, Floats& dw, const Floats& dy, const Floats& x, const Floats& r, const Floats& w, size_t T, size_t H) {
  for (size_t t = 0; t < T; ++t) {
    double dot = 0;
    for (size_t i = 0; i < H; ++i) {
      dot += w[i] * dy[t * H + i] * x[t * H + i];
      dw[i] += dy[t * H + i] * x[t * H + i] * r[t];
    }
    const double pull = r[t] * r[t] * r[t] * dot / static_cast<double>(H);
    for (size_t i = 0; i < H; ++i) dx[t * H + i] += r[t] * w[i] * dy[t * H + i] - pull * x[t * H + i];
  }
}

/// Angle per position of each pair of dimensions: theta^(-2i/D), with the llama3 scaling by wavelength where configured.
Floats rope_frequencies(const Config& c) {
  Floats frequencies(c.head_size / 2);
  for (size_t i = 0; i < frequencies.size(); ++i) {
    const double plain = std::pow(c.rope_theta, -2.0 * static_cast<double>(i) / static_cast<double>(c.head_size));
    frequencies[i] = plain;
    if (c.rope_factor == 0) continue;
    const double wavelength = 2 * M_PI / plain;
    if (wavelength > c.rope_original / c.rope_low) {
      frequencies[i] = plain / c.rope_factor;
    } else if (wavelength >= c.rope_original / c.rope_high) {
      const double keep = (c.rope_original / wavelength - c.rope_low) / (c.rope_high - c.rope_low);
      frequencies[i] = (1 - keep) * plain / c.rope_factor + keep * plain;
    }
  }
  return frequencies;
}

/// Rotates x (T, heads, D) in place: the pair (i, i + D/2) at position t turns by t * frequency_i. A rotation's transpose is
/// its inverse, so the backward pass is the same function with direction -1.
void rope(Floats& x, const Floats& frequencies, size_t T, size_t heads, size_t D, double direction) {
  for (size_t t = 0; t < T; ++t)
    for (size_t i = 0; i < D / 2; ++i) {
      const double angle = direction * static_cast<double>(t) * frequencies[i];
      const double c = std::cos(angle), s = std::sin(angle);
      for (size_t n = 0; n < heads; ++n) {
        double& a = x[(t * heads + n) * D + i];
        double& b = x[(t * heads + n) * D + i + D / 2];
        const double turned_a = a * c - b * s;
        b = b * c + a * s;
        a = turned_a;
      }
    }
}

/// Replaces scores[0..n) by their softmax and returns log(sum(exp(scores))).
double softmax(double* scores, size_t n) {
  const double top = *std::max_element(scores, scores + n);
  double sum = 0;
  for (size_t i = 0; i < n; ++i) sum += (scores[i] = std::exp(scores[i] - top));
  for (size_t i = 0; i < n; ++i) scores[i] /= sum;
  return top + std::log(sum);
}

/// Causal attention, query head n with key/value head n / (N/K):  p_ts = softmax_{s <= t}(q_t k_s / sqrt(D)),  y_t = sum_s p_ts v_s.
/// q, y (T, N, D)   k, v (T, K, D)   p (N, T, T), zero above the diagonal
Floats attention(Floats& p, const Floats& q, const Floats& k, const Floats& v, size_t T, const Config& c) {
  const size_t N = c.heads, K = c.kv_heads, D = c.head_size;
  const double scale = 1 / std::sqrt(static_cast<double>(D));
  Floats y(T * N * D, 0);
  p.assign(N * T * T, 0);
  for (size_t n = 0; n < N; ++n)
    for (size_t t = 0; t < T; ++t) {
      double* row = &p[(n * T + t) * T];
      const double* qt = &q[(t * N + n) * D];
      double* yt = &y[(t * N + n) * D];
      for (size_t s = 0; s <= t; ++s) {
        const double* ks = &k[(s * K + n / (N / K)) * D];
        for (size_t i = 0; i < D; ++i) row[s] += scale * qt[i] * ks[i];
      }
      softmax(row, t + 1);
      for (size_t s = 0; s <= t; ++s) {
        const double* vs = &v[(s * K + n / (N / K)) * D];
        for (size_t i = 0; i < D; ++i) yt[i] += row[s] * vs[i];
      }
    }
  return y;
}

/// With dp_ts = dy_t v_s, softmax gives da_ts = p_ts (dp_ts - sum_u p_tu dp_tu) for the scaled scores a; then
/// dq_t += da_ts k_s / sqrt(D),  dk_s += da_ts q_t / sqrt(D),  dv_s += p_ts dy_t. Query heads of one group add into one k, v.
void attention_backward(Floats& dq, Floats& dk, Floats& dv, const Floats& dy, const Floats& p, const Floats& q, const Floats& k,
                        const Floats& v, size_t T, const Config& c) {
  const size_t N = c.heads, K = c.kv_heads, D = c.head_size;
  const double scale = 1 / std::sqrt(static_cast<double>(D));
  Floats dp(T);
  for (size_t n = 0; n < N; ++n)
    for (size_t t = 0; t < T; ++t) {
      const double* row = &p[(n * T + t) * T];
      const double* qt = &q[(t * N + n) * D];
      const double* dyt = &dy[(t * N + n) * D];
      double* dqt = &dq[(t * N + n) * D];
      double mean = 0;
      for (size_t s = 0; s <= t; ++s) {
        const double* vs = &v[(s * K + n / (N / K)) * D];
        dp[s] = 0;
        for (size_t i = 0; i < D; ++i) dp[s] += dyt[i] * vs[i];
        mean += row[s] * dp[s];
      }
      for (size_t s = 0; s <= t; ++s) {
        const size_t at = (s * K + n / (N / K)) * D;
        const double da = scale * row[s] * (dp[s] - mean);
        for (size_t i = 0; i < D; ++i) {
          dqt[i] += da * k[at + i];
          dk[at + i] += da * qt[i];
          dv[at + i] += row[s] * dyt[i];
        }
      }
    }
}

double sigmoid(double x) { return 1 / (1 + std::exp(-x)); }

// ---------------------------------------------------------------- one document, forward and backward

/// What the forward pass of one layer leaves for the backward pass.
struct LayerState {
  Floats x;           // (T, H) input of the layer
  Floats r1, n1;      // (T), (T, H)
  Floats q, k, v;     // (T, N, D), (T, K, D), (T, K, D); q and k rotated
  Floats p, y;        // (N, T, T), (T, N, D)
  Floats middle;      // (T, H) x + attention
  Floats r2, n2;      // (T), (T, H)
  Floats gate, up;    // (T, F)
  Floats activation;  // (T, F) silu(gate) * up
};

struct DocumentState {
  std::vector<LayerState> layers;
  Floats x, r, n;  // last layer's output (T, H), (T), normalised (T, H)
};

/// Returns the layer's output (T, H):  m = x + o(attention(norm1(x))),  out = m + down(silu(gate(norm2(m))) * up(norm2(m))).
Floats layer_forward(LayerState& s, const Layer& l, const Config& c, const Floats& frequencies, Floats x) {
  const size_t H = c.hidden, F = c.ffn, Q = c.heads * c.head_size, KV = c.kv_heads * c.head_size, T = x.size() / H;
  s.x = std::move(x);
  s.n1 = rms_norm(s.r1, s.x, l.norm1.w, T, H, c.norm_eps);
  s.q = linear(s.n1, l.q.w, T, H, Q);
  s.k = linear(s.n1, l.k.w, T, H, KV);
  s.v = linear(s.n1, l.v.w, T, H, KV);
  rope(s.q, frequencies, T, c.heads, c.head_size, 1);
  rope(s.k, frequencies, T, c.kv_heads, c.head_size, 1);
  s.y = attention(s.p, s.q, s.k, s.v, T, c);
  s.middle = linear(s.y, l.o.w, T, Q, H);
  for (size_t i = 0; i < T * H; ++i) s.middle[i] += s.x[i];

  s.n2 = rms_norm(s.r2, s.middle, l.norm2.w, T, H, c.norm_eps);
  s.gate = linear(s.n2, l.gate.w, T, H, F);
  s.up = linear(s.n2, l.up.w, T, H, F);
  s.activation.resize(T * F);
  for (size_t i = 0; i < T * F; ++i) s.activation[i] = s.gate[i] * sigmoid(s.gate[i]) * s.up[i];
  Floats out = linear(s.activation, l.down.w, T, F, H);
  for (size_t i = 0; i < T * H; ++i) out[i] += s.middle[i];
  return out;
}

/// Takes d(loss)/d(output), adds the layer's weight gradients, returns d(loss)/d(input). A residual stream's gradient is the
/// sum of what comes straight from above and what comes back through the branch.
Floats layer_backward(const LayerState& s, Layer& l, const Config& c, const Floats& frequencies, Floats dout) {
  const size_t H = c.hidden, F = c.ffn, Q = c.heads * c.head_size, KV = c.kv_heads * c.head_size, T = dout.size() / H;
  Floats dactivation(T * F, 0), dgate(T * F), dup(T * F), dn2(T * H, 0);
  linear_backward(dactivation, l.down.g, dout, s.activation, l.down.w, T, F, H);
  for (size_t i = 0; i < T * F; ++i) {
    // silu(g) = g sigma(g), so silu'(g) = sigma(g) (1 + g (1 - sigma(g))).
    const double sigma = sigmoid(s.gate[i]);
    dgate[i] = dactivation[i] * s.up[i] * sigma * (1 + s.gate[i] * (1 - sigma));
    dup[i] = dactivation[i] * s.gate[i] * sigma;
  }
  linear_backward(dn2, l.gate.g, dgate, s.n2, l.gate.w, T, H, F);
  linear_backward(dn2, l.up.g, dup, s.n2, l.up.w, T, H, F);
  Floats dmiddle = std::move(dout);
  rms_norm_backward(dmiddle, l.norm2.g, dn2, s.middle, s.r2, l.norm2.w, T, H);

  Floats dy(T * Q, 0), dq(T * Q, 0), dk(T * KV, 0), dv(T * KV, 0), dn1(T * H, 0);
  linear_backward(dy, l.o.g, dmiddle, s.y, l.o.w, T, Q, H);
  attention_backward(dq, dk, dv, dy, s.p, s.q, s.k, s.v, T, c);
  rope(dq, frequencies, T, c.heads, c.head_size, -1);
  rope(dk, frequencies, T, c.kv_heads, c.head_size, -1);
  linear_backward(dn1, l.q.g, dq, s.n1, l.q.w, T, H, Q);
  linear_backward(dn1, l.k.g, dk, s.n1, l.k.w, T, H, KV);
  linear_backward(dn1, l.v.g, dv, s.n1, l.v.w, T, H, KV);
  Floats dx = std::move(dmiddle);
  rms_norm_backward(dx, l.norm1.g, dn1, s.x, s.r1, l.norm1.w, T, H);
  return dx;
}

using Document = std::vector<size_t>;  // token ids; the label of each token is the next one, the last token has none
using Batch = std::vector<Document>;

/// Logits (T, V) of one document.
Floats document_forward(DocumentState& s, Model& model, const Floats& frequencies, const Document& tokens) {
  const Config& c = model.config;
  const size_t T = tokens.size(), H = c.hidden;
  Floats x(T * H);
  for (size_t t = 0; t < T; ++t)
    for (size_t i = 0; i < H; ++i) x[t * H + i] = model.embedding.w[tokens[t] * H + i];
  s.layers.resize(c.layers);
  for (size_t l = 0; l < c.layers; ++l) x = layer_forward(s.layers[l], model.layers[l], c, frequencies, std::move(x));
  s.x = std::move(x);
  s.n = rms_norm(s.r, s.x, model.norm.w, T, H, c.norm_eps);
  return linear(s.n, model.head().w, T, H, c.vocab);
}

/// Adds the gradients of every parameter, given d(loss)/d(logits) (T, V).
void document_backward(const DocumentState& s, Model& model, const Floats& frequencies, const Document& tokens, const Floats& dlogits) {
  const Config& c = model.config;
  const size_t T = tokens.size(), H = c.hidden;
  Floats dn(T * H, 0), dx(T * H, 0);
  linear_backward(dn, model.head().g, dlogits, s.n, model.head().w, T, H, c.vocab);
  rms_norm_backward(dx, model.norm.g, dn, s.x, s.r, model.norm.w, T, H);
  for (size_t l = c.layers; l-- > 0;) dx = layer_backward(s.layers[l], model.layers[l], c, frequencies, std::move(dx));
  for (size_t t = 0; t < T; ++t)
    for (size_t i = 0; i < H; ++i) model.embedding.g[tokens[t] * H + i] += dx[t * H + i];
}

struct Evaluation {
  double loss = 0;         // mean over all labels of the batch; 0 if there is none
  size_t labels = 0;       // of the batch
  Floats document_losses;  // sum over the labels of each document
  Floats logits;           // (tokens of the batch, V)
};

/// Loss of the batch, and with `gradients` its derivative in every Parameter::g (overwritten).
///
/// loss = 1/labels * sum_t (log(sum_v exp(z_tv)) - z_t,label),  so  dloss/dz_tv = (softmax(z_t)_v - [v = label]) / labels.
Evaluation evaluate(Model& model, const Batch& batch, bool gradients) {
  const Floats frequencies = rope_frequencies(model.config);
  const size_t V = model.config.vocab;
  Evaluation e;
  for (const Document& tokens : batch) e.labels += tokens.size() - 1;
  const double weight = e.labels ? 1 / static_cast<double>(e.labels) : 0;
  if (gradients)
    for (Parameter* p : model.parameters()) p->g.assign(p->g.size(), 0);
  for (const Document& tokens : batch) {
    DocumentState state;
    Floats z = document_forward(state, model, frequencies, tokens);
    e.logits.insert(e.logits.end(), z.begin(), z.end());
    double sum = 0;
    for (size_t t = 0; t < tokens.size(); ++t) {
      double* zt = &z[t * V];
      if (t + 1 == tokens.size()) {
        std::fill(zt, zt + V, 0.0);
        continue;
      }
      const size_t label = tokens[t + 1];
      const double label_logit = zt[label];
      sum += softmax(zt, V) - label_logit;
      zt[label] -= 1;
      for (size_t v = 0; v < V; ++v) zt[v] *= weight;
    }
    e.document_losses.push_back(sum);
    e.loss += sum;
    if (gradients) document_backward(state, model, frequencies, tokens, z);
  }
  e.loss *= weight;
  return e;
}

// ---------------------------------------------------------------- optimizer

struct Optimizer {
  Floats lr{1e-3};  // of each step; the last one holds for all further steps
  double beta1 = 0.9, beta2 = 0.95, eps = 1e-8, weight_decay = 0.1, clip = 1.0;
};

double gradient_norm(Model& model) {
  double sum = 0;
  for (const Parameter* p : model.parameters())
    for (const double g : p->g) sum += g * g;
  return std::sqrt(sum);
}

/// AdamW, step = 1, 2, ...; gradients are scaled by min(1, clip / (norm + 1e-6)) first. Tensors of one dimension don't decay.
void adamw(Model& model, const Optimizer& o, size_t step, double norm) {
  const double scale = std::min(1.0, o.clip / (norm + 1e-6));
  const double lr = o.lr[std::min(step, o.lr.size()) - 1];
  const double correct1 = 1 - std::pow(o.beta1, static_cast<double>(step));
  const double correct2 = 1 - std::pow(o.beta2, static_cast<double>(step));
  for (Parameter* p : model.parameters()) {
    const double decay = p->shape.size() >= 2 ? o.weight_decay : 0;
    for (size_t i = 0; i < p->w.size(); ++i) {
      const double g = p->g[i] * scale;
      p->w[i] *= 1 - lr * decay;
      p->m[i] = o.beta1 * p->m[i] + (1 - o.beta1) * g;
      p->v[i] = o.beta2 * p->v[i] + (1 - o.beta2) * g * g;
      p->w[i] -= lr * (p->m[i] / correct1) / (std::sqrt(p->v[i] / correct2) + o.eps);
    }
  }
}

// ---------------------------------------------------------------- batches

/// tokens and doc_lengths of a fixture's input.safetensors: one batch.
Batch read_input(const fs::path& path) {
  Tensors tensors = read_safetensors(path);
  const Floats& tokens = tensors["tokens"].values;
  Batch batch;
  size_t at = 0;
  for (const double length : tensors["doc_lengths"].values) {
    Document document;
    for (size_t i = 0; i < static_cast<size_t>(length) && at < tokens.size(); ++i) document.push_back(static_cast<size_t>(tokens[at++]));
    batch.push_back(document);
  }
  if (batch.empty() || at != tokens.size()) fail(path.string() + ": doc_lengths don't cut tokens");
  return batch;
}

/// A document per line, ids separated by blanks; blank lines separate the batches of successive steps.
std::vector<Batch> read_documents(const fs::path& path) {
  std::istringstream in(read_file(path));
  std::vector<Batch> batches;
  bool open = false;
  size_t line_number = 0;
  for (std::string line; std::getline(in, line);) {
    ++line_number;
    std::istringstream words(line);
    Document document;
    for (std::string word; words >> word;) {
      if (word.find_first_not_of("0123456789") != std::string::npos)
        fail(path.string() + ":" + std::to_string(line_number) + ": \"" + word + "\" is not a token id");
      document.push_back(std::stoul(word));
    }
    if (document.empty()) {
      open = false;
      continue;
    }
    if (!open) batches.emplace_back();
    open = true;
    batches.back().push_back(document);
  }
  if (batches.empty()) fail(path.string() + ": holds no document");
  return batches;
}

Batch random_batch(const Config& config, const std::vector<size_t>& lengths, Random& random) {
  Batch batch;
  for (const size_t length : lengths) {
    batch.emplace_back();
    for (size_t i = 0; i < length; ++i) batch.back().push_back(random.below(config.vocab));
  }
  return batch;
}

void check_batches(const std::vector<Batch>& batches, const Config& config) {
  for (const Batch& batch : batches)
    for (const Document& document : batch) {
      if (document.empty()) fail("a document is empty; the shortest allowed has one token");
      for (const size_t token : document)
        if (token >= config.vocab)
          fail("token id " + std::to_string(token) + " is outside the vocabulary of " + std::to_string(config.vocab));
    }
}

// ---------------------------------------------------------------- results

Tensor f64(Shape shape, Floats values) { return {"F64", std::move(shape), std::move(values)}; }

void add_parameters(Tensors& results, Model& model, const std::string& prefix, Floats Parameter::*which) {
  for (const Parameter* p : model.parameters()) results[prefix + p->name] = f64(p->shape, p->*which);
}

/// Prints a line per step; returns all that was computed, under the names of a fixture's expected.safetensors, with the
/// parameters initial.<name> and final.<name> besides.
Tensors train(Model& model, const std::vector<Batch>& batches, const Optimizer& optimizer, size_t steps) {
  Tensors results;
  add_parameters(results, model, "initial.", &Parameter::w);
  Floats losses, norms;
  for (size_t step = 0; step < steps; ++step) {
    const Batch& batch = batches[step % batches.size()];
    const Evaluation e = evaluate(model, batch, true);
    losses.push_back(e.loss);
    norms.push_back(gradient_norm(model));
    std::printf("step %zu  loss %.17g  grad_norm %.17g\n", step + 1, losses.back(), norms.back());
    if (step == 0) {
      add_parameters(results, model, "grad.", &Parameter::g);
      results["logits"] = f64({e.logits.size() / model.config.vocab, model.config.vocab}, e.logits);
      results["doc_loss_sum"] = f64({batch.size()}, e.document_losses);
      results["valid_tokens"] = {"I64", {1}, {static_cast<double>(e.labels)}};
    }
    adamw(model, optimizer, step + 1, norms.back());
  }
  const double final_loss = evaluate(model, batches[steps % batches.size()], false).loss;
  std::printf("final_loss %.17g\n", final_loss);
  add_parameters(results, model, "final.", &Parameter::w);
  results["loss"] = f64({1}, {losses[0]});
  results["grad_norm"] = f64({1}, {norms[0]});
  results["train.loss"] = f64({steps}, losses);
  results["train.grad_norm"] = f64({steps}, norms);
  results["train.final_loss"] = f64({1}, {final_loss});
  for (const Parameter* p : model.parameters()) {
    double sum = 0, squares = 0;
    for (const double w : p->w) {
      sum += w;
      squares += w * w;
    }
    results["train.final_sum." + p->name] = f64({1}, {sum});
    results["train.final_sumsq." + p->name] = f64({1}, {squares});
  }
  return results;
}

/// One raw file of doubles per result, <name>.f64, and index.txt with a line "name dim dim ..." for each.
void dump(const fs::path& folder, const Tensors& results) {
  fs::create_directories(folder);
  std::string index;
  for (const auto& [name, tensor] : results) {
    std::string bytes;
    append_bytes<double>(bytes, tensor.values);
    write_file(folder / (name + ".f64"), bytes);
    index += name;
    for (const size_t dim : tensor.shape) index += " " + std::to_string(dim);
    index += "\n";
  }
  write_file(folder / "index.txt", index);
}

/// config.json and model.safetensors (F32) in Hugging Face's names, from the weights the model has now.
void write_model(const fs::path& folder, Model& model) {
  fs::create_directories(folder);
  write_file(folder / "config.json", to_json(model.config));
  Tensors weights;
  for (const Parameter* p : model.parameters()) weights[p->name] = {"F32", p->shape, p->w};
  write_safetensors(folder / "model.safetensors", weights);
}

/// input.safetensors and expected.safetensors, which make a folder with a model a fixture.
void write_fixture(const fs::path& folder, const Batch& batch, const Tensors& results) {
  Floats tokens, labels, lengths;
  for (const Document& document : batch) {
    lengths.push_back(static_cast<double>(document.size()));
    for (size_t t = 0; t < document.size(); ++t) {
      tokens.push_back(static_cast<double>(document[t]));
      labels.push_back(t + 1 < document.size() ? static_cast<double>(document[t + 1]) : -100.0);
    }
  }
  const Shape all{tokens.size()}, documents{batch.size()};
  write_safetensors(folder / "input.safetensors",
                    {{"tokens", {"I64", all, tokens}}, {"labels", {"I64", all, labels}}, {"doc_lengths", {"I64", documents, lengths}}});
  Tensors expected;
  for (const auto& [name, tensor] : results)
    if (!name.starts_with("initial.") && !name.starts_with("final.")) expected[name] = tensor;
  write_safetensors(folder / "expected.safetensors", expected);
}

// ---------------------------------------------------------------- command line

const char* const kUsage = 
    R"(usage: reference FOLDER [options]                       train the model of FOLDER (config.json, model.safetensors)
       reference --random SEED --model SIZES [options]  train a random one; SIZES: hidden,layers,heads,kv_heads,ffn,vocab
  --steps N              optimizer steps (5)
  --lr A,B,...           learning rate of each step, the last one for all further (1e-3)
  --documents FILE       batches: a document per line, ids separated by blanks; a blank line before the next step's batch;
                         after the last batch the first one again. Else: FOLDER's input.safetensors, or random documents
  --lengths A,B,...      lengths of the random documents (9,4,1,13)
  --tied 1               the output head of the random model is its embedding
  --rope-llama3 F,L,H,O  the random model has the llama3 rotary scaling: factor, low, high, original length
  --dump DIR             results as raw float64 files with index.txt: gradients and logits of the first step, parameters before
                         the first and after the last, losses, gradient norms
  --write-model DIR      the initial weights as config.json and model.safetensors; if there is one batch, also input.safetensors
                         and expected.safetensors
)";

Floats parse_list(const std::string& option, const std::string& text) {
  Floats values;
  std::istringstream in(text);
  for (std::string word; std::getline(in, word, ',');) {
    char* end = nullptr;
    values.push_back(std::strtod(word.c_str(), &end));
    if (word.empty() || *end) fail(option + ": \"" + word + "\" is not a number");
  }
  if (values.empty()) fail(option + ": needs a number");
  return values;
}

std::vector<size_t> parse_sizes(const std::string& option, const std::string& text) {
  std::vector<size_t> sizes;
  for (const double value : parse_list(option, text)) {
    if (value < 0 || value != std::floor(value) || value > 1e15) fail(option + ": needs whole numbers, not " + text);
    sizes.push_back(static_cast<size_t>(value));
  }
  return sizes;
}

/// Options and their values; "" is the folder.
std::map<std::string, std::string> parse(int argc, char** argv) {
  std::map<std::string, std::string> options{{"--steps", "5"}, {"--lr", "1e-3"}, {"--lengths", "9,4,1,13"}, {"--tied", "0"},
                                             {"--documents", ""}, {"--dump", ""}, {"--write-model", ""}, {"--random", ""},
                                             {"--model", ""}, {"--rope-llama3", ""}, {"", ""}};
  for (int i = 1; i < argc; ++i) {
    const std::string word = argv[i];
    const bool folder = !word.starts_with("-");
    if (!options.contains(folder ? "" : word) || (folder && !options[""].empty())) fail("unknown argument " + word + "; see --help");
    if (!folder && i + 1 >= argc) fail(word + ": needs a value");
    options[folder ? "" : word] = folder ? word : argv[++i];
  }
  if (options["--random"].empty() == options[""].empty()) fail("give either a folder or --random SEED; see --help");
  return options;
}

Config parse_model(const std::string& sizes, bool tied, const std::string& rope_llama3) {
  const std::vector<size_t> n = parse_sizes("--model", sizes);
  if (n.size() != 6) fail("--model: needs hidden,layers,heads,kv_heads,ffn,vocab");
  Config c{.hidden = n[0], .layers = n[1], .heads = n[2], .kv_heads = n[3], .head_size = n[0] / std::max<size_t>(n[2], 1), .ffn = n[4],
           .vocab = n[5], .tied = tied};
  if (!rope_llama3.empty()) {
    const Floats rope = parse_list("--rope-llama3", rope_llama3);
    if (rope.size() != 4) fail("--rope-llama3: needs factor,low,high,original length");
    c.rope_factor = rope[0], c.rope_low = rope[1], c.rope_high = rope[2], c.rope_original = rope[3];
  }
  check_sizes(c, "--model");
  return c;
}

void run(std::map<std::string, std::string> options) {
  const bool is_random = options[""].empty();
  const fs::path folder = options[""];
  Random random(is_random ? parse_sizes("--random", options["--random"])[0] : 0);
  Model model = is_random ? random_model(parse_model(options["--model"], options["--tied"] == "1", options["--rope-llama3"]), random)
                          : read_model(folder);
  std::vector<Batch> batches;
  if (!options["--documents"].empty()) batches = read_documents(options["--documents"]);
  else if (is_random) batches = {random_batch(model.config, parse_sizes("--lengths", options["--lengths"]), random)};
  else batches = {read_input(folder / "input.safetensors")};
  check_batches(batches, model.config);
  const size_t steps = parse_sizes("--steps", options["--steps"])[0];
  if (steps == 0) fail("--steps: at least 1");
  Optimizer optimizer;
  optimizer.lr = parse_list("--lr", options["--lr"]);

  const std::string out = options["--write-model"];
  if (!out.empty()) write_model(out, model);
  const Tensors results = train(model, batches, optimizer, steps);
  if (!out.empty() && batches.size() == 1) write_fixture(out, batches[0], results);
  if (!options["--dump"].empty()) dump(options["--dump"], results);
}

}  // namespace

int main(int argc, char** argv) {
  try {
    if (argc < 2 || std::strcmp(argv[1], "--help") == 0) {
      std::cout << kUsage;
      return argc < 2 ? 1 : 0;
    }
    run(parse(argc, argv));
    return 0;
  } catch (const std::exception& error) {
    std::cerr << "reference: " << error.what() << "\n";
    return 1;
  }
}
