#include <unistd.h>
void test_first() {}
void test_it() { _exit(0); }
