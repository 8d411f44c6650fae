// Calls the tests of a file, or evaluates expressions with its names.
#define main agentgym_main
#include AGENTGYM_FILE
#undef main
#include <array>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <iterator>
#include <map>
#include <optional>
#include <set>
#include <stdexcept>
#include <string>
#include <string_view>
#include <tuple>
#include <type_traits>
#include <unordered_map>
#include <unordered_set>
#include <utility>
#include <vector>
#include <sys/wait.h>
#include <unistd.h>

namespace agentgym {

#ifdef AGENTGYM_CASES
struct Case { const char* name; void (*call)(); };
#define AGENTGYM_CASE(name) {#name, name},
const Case cases[] = {AGENTGYM_CASES {nullptr, nullptr}};

// Runs a test in a process of its own; returns why it failed, "" if it passed.
std::string outcome(const Case& test) {
  int out[2], done[2];
  if (pipe(out) || pipe(done)) return "no pipe";
  fflush(stdout);
  const pid_t child = fork();
  if (child == 0) {
    close(out[0]), close(done[0]);
    dup2(out[1], 1), dup2(out[1], 2);
    int code = 0;
    try { test.call(); }
    catch (const std::exception& error) { fprintf(stderr, "%s\n", error.what()); code = 1; }
    catch (...) { fprintf(stderr, "an exception\n"); code = 1; }
    fflush(stdout), fflush(stderr);
    if (write(done[1], "x", 1) != 1) code = 1;
    _exit(code);
  }
  close(out[1]), close(done[1]);
  std::string said;
  char part[4096];
  for (ssize_t size; (size = read(out[0], part, sizeof part)) > 0;)
    if (said.size() < 4000) said.append(part, size);
  const bool returned = read(done[0], part, 1) == 1;
  close(out[0]), close(done[0]);
  int status = 0;
  waitpid(child, &status, 0);
  if (returned && WIFEXITED(status) && WEXITSTATUS(status) == 0) return "";
  if (WIFSIGNALED(status)) {
    const int sent = WTERMSIG(status);
    return (sent == 6 ? "assertion or abort: " : "signal " + std::to_string(sent) + ": ") + said;
  }
  return (returned ? "an exception: " : "it ended the process: ") + said;
}
#endif

template <class T> struct is_optional : std::false_type {};
template <class T> struct is_optional<std::optional<T>> : std::true_type {};
template <class T, class = void> struct is_tuple : std::false_type {};
template <class T> struct is_tuple<T, std::void_t<decltype(std::tuple_size<T>::value)>> : std::true_type {};
template <class T, class = void> struct is_map : std::false_type {};
template <class T> struct is_map<T, std::void_t<typename T::mapped_type>> : std::true_type {};
template <class T> constexpr bool is_nothing = std::is_same_v<T, std::nullptr_t> || std::is_same_v<T, std::nullopt_t>;

std::string quoted(std::string_view text) {
  std::string made = "\"";
  for (const unsigned char letter : text) {
    char code[8];
    if (letter == '"' || letter == '\\') (made += '\\') += letter;
    else if (letter < 32) snprintf(code, sizeof code, "\\u%04x", letter), made += code;
    else made += letter;
  }
  return made + "\"";
}

// A value as JSON.
template <class T> std::string plain(const T& value) {
  if constexpr (std::is_same_v<T, bool>) return value ? "true" : "false";
  else if constexpr (is_nothing<T>) return "null";
  else if constexpr (std::is_same_v<T, char>) return quoted(std::string_view(&value, 1));
  else if constexpr (std::is_integral_v<T>) return std::to_string(value);
  else if constexpr (std::is_floating_point_v<T>) {
    if (!std::isfinite(value)) throw std::domain_error("it is not a JSON value");
    char text[64];
    snprintf(text, sizeof text, "%.17g", double(value));
    return text;
  }
  else if constexpr (std::is_convertible_v<const T&, std::string_view>) return quoted(value);
  else if constexpr (is_optional<T>::value) return value ? plain(*value) : "null";
  else if constexpr (is_map<T>::value) {
    std::map<std::string, std::string> sorted;
    for (const auto& [key, item] : value)
      if constexpr (std::is_convertible_v<decltype(key), std::string_view>) sorted[quoted(key)] = plain(item);
      else sorted[quoted(plain(key))] = plain(item);
    std::string made;
    for (const auto& [key, item] : sorted) made += (made.empty() ? "" : ",") + key + ":" + item;
    return "{" + made + "}";
  }
  else if constexpr (is_tuple<T>::value) {
    std::string made;
    std::apply([&](const auto&... items) { ((made += (made.empty() ? "" : ",") + plain(items)), ...); }, value);
    return "[" + made + "]";
  }
  else {
    std::string made;
    for (const auto& item : value) made += (made.empty() ? "" : ",") + plain(item);
    return "[" + made + "]";
  }
}

template <class F> void write_value(int number, F evaluated) {
  std::string text;
  try { text = plain(evaluated()); }
  catch (const std::exception& error) { text = "raised " + quoted(std::string(error.what()).substr(0, 60)); }
  catch (...) { text = "raised an exception"; }
  text = std::to_string(number) + " " + text + "\n";
  if (write(4, text.data(), text.size()) < 0) abort();
}

}  // namespace agentgym

int main() {
#ifdef AGENTGYM_CASES
  std::string failures;
  printf("running %zu tests\n", std::size(agentgym::cases) - 1);
  for (const auto& test : agentgym::cases) {
    if (!test.name) break;
    const std::string why = agentgym::outcome(test);
    printf("test %s ... %s\n", test.name, why.empty() ? "ok" : "FAILED");
    if (!why.empty()) failures += "---- " + std::string(test.name) + " stdout ----\n" + why + "\n";
  }
  printf("failures:\n%s\ntest result: done\n", failures.c_str());
  return failures.empty() ? 0 : 1;
#else
#define AGENTGYM_VALUE(number, expression) agentgym::write_value(number, [&] { return expression; });
#include AGENTGYM_VALUES
#endif
}
