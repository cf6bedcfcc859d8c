/* A witness from outside: counts every MPI call of a rank that moves data, whatever the program says of itself.

     cc -shared -fPIC -o libcount.so count.c -ldl
     LD_PRELOAD=libcount.so MPI_COUNTS=folder mpiexec -n N ...      leaves folder/RANK.counts, lines "Allreduce 12"

   MPI's profiling interface gives each function a second name, PMPI_...; the functions below take the first name, count,
   and call the second. They pass on ten words without knowing what they are: no call here has more arguments, all are
   integers, handles or pointers, and where a caller gave fewer the rest is not looked at. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#define MOVING(X) \
  X(Allreduce) X(Reduce) X(Reduce_scatter) X(Reduce_scatter_block) X(Allgather) X(Allgatherv) X(Gather) X(Gatherv) \
  X(Scatter) X(Scatterv) X(Alltoall) X(Alltoallv) X(Alltoallw) X(Bcast) X(Barrier) X(Scan) X(Exscan) \
  X(Iallreduce) X(Ireduce) X(Ireduce_scatter) X(Ireduce_scatter_block) X(Iallgather) X(Iallgatherv) X(Igather) \
  X(Igatherv) X(Iscatter) X(Iscatterv) X(Ialltoall) X(Ialltoallv) X(Ialltoallw) X(Ibcast) X(Ibarrier) \
  X(Send) X(Ssend) X(Bsend) X(Rsend) X(Recv) X(Sendrecv) X(Sendrecv_replace) X(Isend) X(Issend) X(Irecv) X(Mrecv) \
  X(Imrecv) X(Put) X(Get) X(Accumulate) X(Get_accumulate)

typedef long word;
typedef int (*call)(word, word, word, word, word, word, word, word, word, word);

static void *second_name(const char *name) {
  /* Python loads the MPI library for itself alone, so that "the next one" is not always where it can be found. */
  void *found = dlsym(RTLD_NEXT, name), *library = NULL;
  if (!found && (library = dlopen("libmpi.so.12", RTLD_LAZY | RTLD_NOLOAD))) found = dlsym(library, name);
  if (!found) {
    fprintf(stderr, "count.c: this MPI library has no %s\n", name);
    _exit(99);
  }
  return found;
}

/* Functions whose name ends in _c are the same ones, with large counts. */
#define WRAP(name, suffix) \
  int MPI_##name##suffix(word a, word b, word c, word d, word e, word f, word g, word h, word i, word j) { \
    static call real; \
    if (!real) real = (call)second_name("PMPI_" #name #suffix); \
    count_##name++; \
    return real(a, b, c, d, e, f, g, h, i, j); \
  }
#define COUNTED(name) static long count_##name; WRAP(name, ) WRAP(name, _c)
MOVING(COUNTED)

int MPI_Finalize(void) {
  const char *folder = getenv("MPI_COUNTS"), *rank = getenv("PMI_RANK");
  char path[4096];
  if (folder && snprintf(path, sizeof path, "%s/%s.counts", folder, rank ? rank : "0") < (int)sizeof path) {
    FILE *out = fopen(path, "w");
    if (out) {
#define WRITE(name) if (count_##name) fprintf(out, #name " %ld\n", count_##name);
      MOVING(WRITE)
      fclose(out);
    }
  }
  return ((int (*)(void))second_name("PMPI_Finalize"))();
}
