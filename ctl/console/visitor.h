/* Which user of this machine a connection to the console comes from. On the loopback any local user can connect, and a
 * cookie is all that keeps them out; so the kernel is asked for the owner of the socket at the other end.
 *
 * TCP: sock_diag(7), for exactly that socket. Its owner is known while somebody has it open: a closed one belongs to
 * root for the kernel, so it counts as unknown. Sockets of the file system: SO_PEERCRED. An unknown user is not
 * admitted. */
#ifndef ISSUING_CONSOLE_VISITOR_H
#define ISSUING_CONSOLE_VISITOR_H

#include <sys/types.h>

#include "common/lib/base/base.h"
#include "common/lib/base/err.h"

struct visitors {
    int diagnoser; /* a netlink socket; -1 = none */
    uint32_t asked;
    uid_t own;
    uid_t starter; /* who started the console by sudo; else `own` */
};

/* The users are the one who runs this process and, where sudo started it, the one who called sudo. */
void visitors_open(struct visitors *visitors);
/* Opens what users of TCP are asked for. ERR_SYSTEM. */
must_check bool visitors_know_tcp(struct visitors *visitors, struct err *err);
void visitors_close(struct visitors *visitors);
/* The user at the other end of a connected socket. false: it cannot be determined. */
must_check bool visitors_user(struct visitors *visitors, int fd, uid_t *ret_user);
bool visitors_admit(const struct visitors *visitors, uid_t user);

#endif
