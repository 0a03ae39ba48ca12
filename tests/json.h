#pragma once
// The conformance data of tests/conformance/data as JSON and as tensors, and what "agrees with it" means.
#include <gradus/core.h>

#include <algorithm>
#include <cmath>
#include <fstream>
#include <limits>
#include <nlohmann/json.hpp>
#include <stdexcept>
#include <string>
#include <vector>

namespace gradus::test {

using Json = nlohmann::json;

/// The parsed file NAME.json of the conformance data; a name may hold a folder ("ops/add").
inline Json conformance(const std::string& name) {
  const std::string path = std::string(GRADUS_TEST_DIR) + "/conformance/data/" + name + ".json";
  std::ifstream file(path);
  if (!file) throw std::runtime_error("cannot read " + path);
  return Json::parse(file);
}

/// A number, also one written as the string "NaN", "Infinity" or "-Infinity" (or torch's "inf").
inline double number(const Json& json) {
  if (!json.is_string()) return json.is_boolean() ? json.get<bool>() : json.get<double>();
  const std::string text = json.get<std::string>();
  if (text == "NaN" || text == "nan") return std::numeric_limits<double>::quiet_NaN();
  if (text == "Infinity" || text == "inf") return std::numeric_limits<double>::infinity();
  if (text == "-Infinity" || text == "-inf") return -std::numeric_limits<double>::infinity();
  throw std::runtime_error("not a number: " + text);
}

inline DType dtype(const std::string& name) {
  if (name == "float32") return Float32;
  if (name == "float64") return Float64;
  if (name == "int64") return Int64;
  if (name == "bool") return Bool;
  throw std::runtime_error("no such dtype here: " + name);
}

inline Shape shape(const Json& json) { return json.at("shape").get<std::vector<std::int64_t>>(); }

/// {"shape", "dtype", "data"} as a row-major tensor of its own; null as an undefined one.
inline Tensor to_tensor(const Json& json) {
  if (json.is_null()) return {};
  const DType type = dtype(json.at("dtype").get<std::string>());
  const Json& data = json.at("data");
  if (type == Int64) return from_vector(data.get<std::vector<std::int64_t>>(), shape(json));
  std::vector<double> numbers;
  for (const Json& entry : data) numbers.push_back(number(entry));
  return from_vector(numbers, shape(json), {.dtype = Float64}).to(type);
}

/// The largest |actual - expected|/(atol + rtol·|expected|); infinity where the shapes differ or only one is NaN.
/// At most 1 means agreement.
inline double disagreement(const Tensor& actual, const Tensor& expected, double rtol = 1e-10, double atol = 1e-12) {
  if (actual.shape() != expected.shape()) return std::numeric_limits<double>::infinity();
  const auto a = actual.to_vector<double>(), e = expected.to_vector<double>();
  double worst = 0;
  for (std::size_t i = 0; i < a.size(); ++i) {
    if (a[i] == e[i] || (std::isnan(a[i]) && std::isnan(e[i]))) continue;
    const double ratio = std::abs(a[i] - e[i]) / (atol + rtol * std::abs(e[i]));
    worst = std::isnan(ratio) ? std::numeric_limits<double>::infinity() : std::max(worst, ratio);
  }
  return worst;
}

}  // namespace gradus::test
