/*
** idem_node.c: one node of a dqlite cluster whose SQL knows idem.
**
**     idem-node [-f] [-l MS] ID ADDRESS DIRECTORY [JOIN ...]
**
**   -f         founds a cluster: node 1, at its very first start. Without it node 1 does not start
**              in an empty directory, as it would found a second cluster, which knows no claim of
**              the first
**   -l MS      the network's latency between nodes, 1 to 10000 ms (10): a leader that is silent for
**              15 to 30 times as long is replaced
**   ID         1 founds a cluster, any other number joins one. A directory keeps its number, and a
**              number its directory: who lost it comes back under a new one, since what it had
**              acknowledged may be needed for a majority
**   ADDRESS    IPv4:port at which clients and the other nodes reach this one
**   DIRECTORY  its data; made if missing. One process at a time
**   JOIN       nodes to ask for admission, in any order; harmless once admitted
**
** Prints "ready" when it serves, "joined" when it was admitted. SIGTERM and SIGINT stop it: exit
** code 0. If it crashes it says where: let it be restarted (libraft 0.15 can, see README.md). It
** links idem statically and registers it for every connection that dqlite opens, since dqlite does
** not allow SELECT load_extension().
*/
#include "idem.h"

#include <arpa/inet.h>
#include <dqlite.h>
#include <errno.h>
#include <execinfo.h>
#include <fcntl.h>
#include <netinet/tcp.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

#define ADDRESS_MAX 64   /* bytes of an address */
#define CONNECT_MS  1000 /* how long to wait for another node, when it joins or connects */
#define SILENCE_MS  5000 /* a connection whose peer is silent for so long is dropped */

/* Requests and responses of dqlite's wire protocol: the few that joining needs. */
enum { ASK_LEADER = 0, ASK_ADD = 12, ASK_ASSIGN = 13, ASK_CLUSTER = 16 };
enum { SAID_SERVER = 1, SAID_NODES = 3, SAID_EMPTY = 8 };
enum { ROLE_VOTER = 0, NO_MEMBER = -1, NO_ANSWER = -2 };

typedef struct Message {
  unsigned char a[4096]; /* 8 bytes of header, then the body */
  size_t n;              /* bytes in use, a multiple of 8 */
  size_t i;              /* the next byte to read */
} Message;

static void put64(Message *p, uint64_t v) {
  for (int i = 0; i < 8; i++) p->a[p->n++] = (unsigned char)(v >> 8 * i);
}

/* A text ends with a NUL and is padded to a multiple of 8. */
static void putText(Message *p, const char *z) {
  memset(p->a + p->n, 0, ADDRESS_MAX + 8);
  memcpy(p->a + p->n, z, strlen(z));
  p->n += (strlen(z) / 8 + 1) * 8;
}

static uint64_t get64(Message *p) {
  uint64_t v = 0;
  if (p->i + 8 > p->n) return UINT64_MAX;
  for (int i = 7; i >= 0; i--) v = v << 8 | p->a[p->i + (size_t)i];
  p->i += 8;
  return v;
}

/* The next text, or "" if there is none that fits an address. */
static const char *getText(Message *p) {
  const char *z = (const char *)p->a + p->i;
  if (p->i >= p->n || !memchr(z, 0, p->n - p->i) || strlen(z) >= ADDRESS_MAX) return "";
  p->i += (strlen(z) / 8 + 1) * 8;
  return z;
}

static int sendAll(int fd, const unsigned char *a, size_t n) {
  return send(fd, a, n, MSG_NOSIGNAL) == (ssize_t)n;
}

static int receiveAll(int fd, unsigned char *a, size_t n) {
  return recv(fd, a, n, MSG_WAITALL) == (ssize_t)n;
}

/* Begins a request. */
static void ask(Message *p, uint64_t v) {
  memset(p, 0, sizeof(*p));
  p->n = 8;
  put64(p, v);
}

/* Sends the request and puts the response in its place. Its type, or -1. */
static int answer(int fd, int eRequest, Message *p) {
  size_t nBody;
  for (int i = 0; i < 4; i++) p->a[i] = (unsigned char)((p->n - 8) / 8 >> 8 * i);
  p->a[4] = (unsigned char)eRequest;
  if (!sendAll(fd, p->a, p->n) || !receiveAll(fd, p->a, 8)) return -1;
  nBody = (p->a[0] | (size_t)p->a[1] << 8 | (size_t)p->a[2] << 16 | (size_t)p->a[3] << 24) * 8;
  if (nBody > sizeof(p->a) - 8 || !receiveAll(fd, p->a + 8, nBody)) return -1;
  p->n = 8 + nBody;
  p->i = 8;
  return p->a[4];
}

/* Reads digits. True if they are a number of 1 to iMax. */
static int parseNumber(const char *z, uint64_t iMax, uint64_t *piNumber) {
  char *zEnd;
  if (*z < '0' || *z > '9') return 0;
  errno = 0;
  *piNumber = strtoull(z, &zEnd, 10);
  return errno == 0 && !*zEnd && *piNumber >= 1 && *piNumber <= iMax;
}

/* Reads an address. True if it is IPv4:port. */
static int parse(const char *zAddress, struct sockaddr_in *pSin) {
  char zHost[ADDRESS_MAX], *zPort;
  uint64_t iPort;
  memset(pSin, 0, sizeof(*pSin));
  if (strlen(zAddress) >= sizeof(zHost)) return 0;
  strcpy(zHost, zAddress);
  zPort = strchr(zHost, ':');
  if (!zPort) return 0;
  *zPort++ = 0;
  if (!parseNumber(zPort, 65535, &iPort)) return 0;
  pSin->sin_family = AF_INET;
  pSin->sin_port = htons((uint16_t)iPort);
  return inet_pton(AF_INET, zHost, &pSin->sin_addr) == 1;
}

/*
** Connects to a node; dqlite calls it too, for every connection from this node to another. There it
** differs from dqlite's own in three points. Messages are small and each is waited for, hence
** TCP_NODELAY. A peer behind a broken link is given up after a second, not after two minutes, as
** connecting occupies one of few threads. And a connection that broke unnoticed is noticed.
*/
static int dial(void *pUnused, const char *zAddress, int *pFd) {
  struct sockaddr_in sin;
  struct timeval wait = {CONNECT_MS / 1000, CONNECT_MS % 1000 * 1000}, forever = {0, 0};
  int bOn = 1, msSilence = SILENCE_MS;
  (void)pUnused;
  if (!parse(zAddress, &sin)) return -1;
  *pFd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  if (*pFd < 0) return -1;
  if (setsockopt(*pFd, IPPROTO_TCP, TCP_NODELAY, &bOn, sizeof(bOn)) ||
      setsockopt(*pFd, IPPROTO_TCP, TCP_USER_TIMEOUT, &msSilence, sizeof(msSilence)) ||
      setsockopt(*pFd, SOL_SOCKET, SO_SNDTIMEO, &wait, sizeof(wait)) ||
      connect(*pFd, (struct sockaddr *)&sin, sizeof(sin)) ||
      setsockopt(*pFd, SOL_SOCKET, SO_SNDTIMEO, &forever, sizeof(forever))) {
    close(*pFd);
    return -1;
  }
  return 0;
}

/* A connection that speaks the wire protocol, for joining; or -1. */
static int greet(const char *zAddress) {
  const unsigned char aVersion[8] = {1};
  struct timeval wait = {SILENCE_MS / 1000, 0};
  int fd;
  if (dial(0, zAddress, &fd)) return -1;
  setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &wait, sizeof(wait));
  if (sendAll(fd, aVersion, sizeof(aVersion))) return fd;
  close(fd);
  return -1;
}

/* A connection to the leader of the cluster that the node at zVia belongs to; or -1. */
static int greetLeader(const char *zVia) {
  Message m;
  char zLeader[ADDRESS_MAX] = "";
  int fd = greet(zVia);
  if (fd < 0) return -1;
  ask(&m, 0);
  if (answer(fd, ASK_LEADER, &m) == SAID_SERVER) {
    get64(&m);
    strcpy(zLeader, getText(&m));
  }
  close(fd);
  return zLeader[0] ? greet(zLeader) : -1;
}

/* The role that the leader on fd knows for a node; or NO_MEMBER, or NO_ANSWER. */
static int roleOf(int fd, uint64_t id) {
  Message m;
  ask(&m, 1); /* with roles */
  if (answer(fd, ASK_CLUSTER, &m) != SAID_NODES) return NO_ANSWER;
  for (uint64_t n = get64(&m); n > 0 && m.i < m.n; n--) {
    uint64_t idNode = get64(&m);
    getText(&m);
    uint64_t eRole = get64(&m);
    if (idNode == id) return (int)eRole;
  }
  return NO_MEMBER;
}

/* Asks the leader on fd to make this node a voter. True if it is one. */
static int admit(int fd, uint64_t id, const char *zAddress) {
  Message m;
  int eRole = roleOf(fd, id);
  if (eRole == ROLE_VOTER || eRole == NO_ANSWER) return eRole == ROLE_VOTER;
  if (eRole == NO_MEMBER) {
    ask(&m, id);
    putText(&m, zAddress);
    if (answer(fd, ASK_ADD, &m) != SAID_EMPTY) return 0;
  }
  ask(&m, id);
  put64(&m, ROLE_VOTER);
  return answer(fd, ASK_ASSIGN, &m) == SAID_EMPTY;
}

/* Asks the cluster of the node at zVia for admission. True if this node is a voter. */
static int join(const char *zVia, uint64_t id, const char *zAddress) {
  int bDone, fd = greetLeader(zVia);
  if (fd < 0) return 0;
  bDone = admit(fd, id, zAddress);
  close(fd);
  return bDone;
}

/* True if one of these nodes says that node id votes already. */
static int isVoter(uint64_t id, char **azJoin, int nJoin) {
  int eRole = NO_ANSWER;
  for (int i = 0; i < nJoin && eRole == NO_ANSWER; i++) {
    int fd = greetLeader(azJoin[i]);
    if (fd < 0) continue;
    eRole = roleOf(fd, id);
    close(fd);
  }
  return eRole == ROLE_VOTER;
}

static int fail(const char *zWhat, const char *zWhy) {
  fprintf(stderr, "idem-node: %s%s%s\n", zWhat, zWhy ? ": " : "", zWhy ? zWhy : "");
  return 1;
}

static int usage(void) {
  fprintf(stderr,
          "usage: idem-node [-f] [-l MS] ID ADDRESS DIRECTORY [JOIN ...]\n"
          "ID 1 founds a cluster (once, with -f), others join one; addresses are IPv4:port\n");
  return 2;
}

/* Makes the directory if it is missing, and holds it until the process ends: two nodes in one would
** ruin it. True if that worked; bFound says that a cluster is to be founded in it. */
static int enter(const char *zDirectory, uint64_t id, int bFound, char **azJoin, int nJoin) {
  int fd = -1, bFresh;
  if (mkdir(zDirectory, 0700) == 0 || errno == EEXIST) {
    fd = open(zDirectory, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  }
  if (fd < 0 || flock(fd, LOCK_EX | LOCK_NB)) {
    fail(zDirectory, fd >= 0 && errno == EWOULDBLOCK ? "another node runs in it" : strerror(errno));
    return 0;
  }
  bFresh = faccessat(fd, "metadata1", F_OK, 0) != 0;
  if (bFresh && id == 1 && !bFound) {
    fail(zDirectory, "no node was here: -f founds a cluster, and a node that lost its directory "
                     "comes back under a new number");
  } else if (!bFresh && bFound) {
    fail(zDirectory, "a node was here already: start it without -f");
  } else if (bFresh && isVoter(id, azJoin, nJoin)) {
    fail(zDirectory, "no node was here, but the cluster has one of this number: a node that lost "
                     "its directory comes back under a new number");
  } else {
    return 1;
  }
  return 0;
}

/* Says where the thread is that crashes, by library and offset, and lets it crash. */
static void crashed(int iSignal) {
  static const char zText[] = "idem-node: crashed in\n";
  void *apFrame[32];
  int n = backtrace(apFrame, 32);
  if (write(STDERR_FILENO, zText, sizeof(zText) - 1) > 0) {
    backtrace_symbols_fd(apFrame, n, STDERR_FILENO);
  }
  signal(iSignal, SIG_DFL);
  raise(iSignal);
}

static void reportCrashes(void) {
  void *pFrame;
  backtrace(&pFrame, 1); /* loads what it needs: in a handler it would be too late */
  signal(SIGSEGV, crashed);
  signal(SIGBUS, crashed);
  signal(SIGABRT, crashed);
}

/* Serves until SIGTERM or SIGINT; asks azJoin in turn until one of them has let us in. */
static void serve(uint64_t id, const char *zAddress, char **azJoin, int nJoin) {
  struct timespec pause = {0, 200000000};
  sigset_t stop;
  int bMember = nJoin == 0;
  sigemptyset(&stop);
  sigaddset(&stop, SIGTERM);
  sigaddset(&stop, SIGINT);
  printf("ready %s\n", zAddress);
  fflush(stdout);
  for (int i = 0; !bMember; i++) {
    bMember = join(azJoin[i % nJoin], id, zAddress);
    if (bMember) printf("joined\n");
    fflush(stdout);
    if (!bMember && sigtimedwait(&stop, 0, &pause) > 0) return;
  }
  while (sigwaitinfo(&stop, 0) < 0 && errno == EINTR) continue;
}

int main(int argc, char **argv) {
  dqlite_node *pNode = 0;
  sigset_t stop;
  struct sockaddr_in sin;
  uint64_t msLatency = 10, id;
  int bFound = 0, c;
  opterr = 0;
  while ((c = getopt(argc, argv, "fl:")) != -1) {
    if (c == 'f') bFound = 1;
    if (c == '?' || (c == 'l' && !parseNumber(optarg, 10000, &msLatency))) return usage();
  }
  if (argc - optind < 3 || !parseNumber(argv[optind], UINT64_MAX, &id)) return usage();
  char *zAddress = argv[optind + 1], *zDirectory = argv[optind + 2], **azJoin = argv + optind + 3;
  int nJoin = argc - optind - 3;
  if (!parse(zAddress, &sin) || (id == 1 ? nJoin > 0 : bFound)) return usage();

  /* A client or node that dies while it is written to must not take this node along. The stop
  ** signals are blocked before dqlite makes its threads, so that they come to serve() alone. */
  signal(SIGPIPE, SIG_IGN);
  reportCrashes();
  sigemptyset(&stop);
  sigaddset(&stop, SIGTERM);
  sigaddset(&stop, SIGINT);
  if (sigprocmask(SIG_BLOCK, &stop, 0)) return fail("sigprocmask", strerror(errno));
  if (!enter(zDirectory, id, bFound, azJoin, nJoin)) return 1;
  if (sqlite3_auto_extension((void (*)(void))sqlite3_idem_init)) return fail("idem", 0);

  errno = 0;
  if (dqlite_node_create(id, zAddress, zDirectory, &pNode) ||
      dqlite_node_set_bind_address(pNode, zAddress) ||
      dqlite_node_set_network_latency_ms(pNode, (unsigned)msLatency) ||
      dqlite_node_set_connect_func(pNode, dial, 0) || dqlite_node_start(pNode)) {
    const char *zWhy = pNode ? dqlite_node_errmsg(pNode) : "";
    fail(zAddress, zWhy && *zWhy ? zWhy : strerror(errno)); /* its text may be empty */
    if (pNode) dqlite_node_destroy(pNode);
    return 1;
  }
  serve(id, zAddress, azJoin, nJoin);
  dqlite_node_stop(pNode);
  dqlite_node_destroy(pNode);
  return 0;
}
