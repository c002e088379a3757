#include <x.h>
struct point { int x; };
typedef struct { int a; } pair_t;
static int *add(int a, char *b) { return 0; }
int declared(void);
int variable = 3;
#ifdef X
void conditional(void) {}
#endif
#define MAX(a) (a)
