void hi(const char* name);
