#include "hi.hpp"
int main(int, char** w) { hi(w[1]); }
