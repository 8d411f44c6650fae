#include <cstdlib>
#include <cstring>
#include <fstream>
#include <iostream>
#include <string>
#include <vector>
#include <spawn.h>
extern char** environ;
bool slept(char* time) {
  char name[] = "sleep";
  char* words[] = {name, time, nullptr};
  pid_t child;
  return posix_spawnp(&child, "sleep", nullptr, nullptr, words, environ) == 0;
}
int main(int, char** words) {
  const std::string what = words[1];
  static std::vector<std::vector<char>> held;
  if (what == "loop") { std::cout << "begun" << std::endl; for (volatile int n = 0;; n = n + 1) {} }
  if (what == "memory") for (;;) held.emplace_back(16 << 20, 'x');
  if (what == "file") {
    std::ofstream file("big");
    const std::string part(1 << 20, 'x');
    while (file << part << std::flush) {}
    return 1;
  }
  if (what == "output") for (;;) std::cout << std::string(5000, 'x') << std::flush;
  if (what == "daemon" && !slept(words[2])) std::cout << "refused" << std::endl;
  if (what == "processes") {
    int count = 0;
    char time[] = "30";
    while (count < 400 && slept(time)) ++count;
    std::cout << count;
  }
}
