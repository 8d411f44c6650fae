#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <functional>
#include <iostream>
#include <iterator>
#include <string>
#include <arpa/inet.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>
extern char** environ;
void attempt(bool reached) { std::cout << (reached ? "REACHED" : "refused") << std::endl; }
bool written(const std::string& path) { std::ofstream file(path); return bool(file << "x" << std::flush); }
std::string text_of(const std::string& path) {
  std::ifstream file(path);
  return {std::istreambuf_iterator<char>(file), {}};
}
bool bound(int kind) {
  sockaddr_in place{};
  place.sin_family = AF_INET;
  place.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  const int one = socket(AF_INET, kind, 0);
  return one >= 0 && bind(one, (sockaddr*)&place, sizeof place) == 0;
}
int main(int, char** words) {
  const std::string folder = words[1];
  attempt(written(folder + "/written"));
  attempt(mkdir((folder + "/made").c_str(), 0777) == 0);
  attempt(remove((folder + "/victim").c_str()) == 0);
  attempt(rename((folder + "/secret").c_str(), "stolen") == 0);
  for (const char* path : {"/usr/x", "/etc/x", "/dev/x", "/root/x"}) attempt(written(path));
  attempt(!text_of(folder + "/secret").empty());
  attempt(!text_of("/etc/shadow").empty());
  std::string seen;
  for (char** each = environ; *each; ++each) seen += *each;
  for (const std::string pid : {std::string("1"), std::to_string(getppid()), std::string("self")})
    seen += text_of("/proc/" + pid + "/environ");
  attempt(seen.find("hunter2") != std::string::npos);
  attempt(bound(SOCK_STREAM));
  attempt(bound(SOCK_DGRAM));
}
