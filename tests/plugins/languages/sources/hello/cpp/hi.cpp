#include "hi.hpp"
#include <cstdio>
void hi(const char* name) { printf("hi %s\n", name); }
