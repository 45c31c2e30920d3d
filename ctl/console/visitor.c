/* See visitor.h. Left out: what the user may do; that is the cookie's business (admission.h). */
#include "ctl/console/visitor.h"

#include <errno.h>
#include <linux/inet_diag.h>
#include <linux/netlink.h>
#include <linux/sock_diag.h>
#include <netinet/in.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "common/lib/base/ip_address.h"

/* SUDO_UID, as sudo sets it. It comes from whoever started this process, who could admit others anyway. */
static uid_t starter_of(uid_t own)
{
    const char *text = getenv("SUDO_UID");
    char *end;
    if (!text || *text < '0' || *text > '9')
        return own;
    errno = 0;
    unsigned long long user = strtoull(text, &end, 10);
    return errno == 0 && *end == '\0' && user < UINT32_MAX ? (uid_t)user : own;
}

void visitors_open(struct visitors *visitors)
{
    uid_t own = geteuid();
    *visitors = (struct visitors){.diagnoser = -1, .own = own, .starter = starter_of(own)};
}

bool visitors_know_tcp(struct visitors *visitors, struct err *err)
{
    visitors->diagnoser = socket(AF_NETLINK, SOCK_DGRAM | SOCK_CLOEXEC, NETLINK_SOCK_DIAG);
    return visitors->diagnoser >= 0 ||
           err_set(err, ERR_SYSTEM, "the kernel does not tell whose connections these are (%s): use --socket PATH",
                   strerror(errno));
}

void visitors_close(struct visitors *visitors)
{
    if (visitors->diagnoser >= 0)
        close(visitors->diagnoser);
    visitors->diagnoser = -1;
}

bool visitors_admit(const struct visitors *visitors, uid_t user)
{
    return user == visitors->own || user == visitors->starter;
}

/* ---- TCP ---- */

struct question {
    struct nlmsghdr head;
    struct inet_diag_req_v2 request;
};

/* An address of the kernel's form; IPv4 in the first word, also where IPv6 sockets speak it. */
static void put_address(__be32 ret_words[4], const struct ip_address *address, bool is_v4)
{
    memcpy(ret_words, address->bytes + (is_v4 ? 12 : 0), is_v4 ? 4 : 16);
}

/* Behind the family, in both of them. */
static in_port_t port_of(const struct sockaddr_storage *address)
{
    in_port_t port;
    _Static_assert(offsetof(struct sockaddr_in, sin_port) == offsetof(struct sockaddr_in6, sin6_port), "ports");
    memcpy(&port, (const char *)address + offsetof(struct sockaddr_in, sin_port), sizeof(port));
    return port;
}

/* The other end's socket has our addresses the other way round. */
static bool make_question(struct visitors *visitors, int fd, struct question *ret_question)
{
    struct sockaddr_storage theirs = {0}, ours = {0};
    socklen_t length = sizeof(theirs), other_length = sizeof(ours);
    if (getpeername(fd, (struct sockaddr *)&theirs, &length) != 0 ||
        getsockname(fd, (struct sockaddr *)&ours, &other_length) != 0)
        return false;
    struct ip_address source = ip_address_of_socket(&theirs), target = ip_address_of_socket(&ours);
    bool is_v4 = ip_address_is_v4(&source);
    if (!ip_address_is_known(&source) || ip_address_is_v4(&target) != is_v4)
        return false;
    *ret_question = (struct question){
        .head = {.nlmsg_len = sizeof(*ret_question),
                 .nlmsg_type = SOCK_DIAG_BY_FAMILY,
                 .nlmsg_flags = NLM_F_REQUEST,
                 .nlmsg_seq = ++visitors->asked},
        .request = {.sdiag_family = is_v4 ? AF_INET : AF_INET6,
                    .sdiag_protocol = IPPROTO_TCP,
                    .idiag_states = ~0u,
                    .id = {.idiag_sport = port_of(&theirs),
                           .idiag_dport = port_of(&ours),
                           .idiag_cookie = {INET_DIAG_NOCOOKIE, INET_DIAG_NOCOOKIE}}},
    };
    put_address(ret_question->request.id.idiag_src, &source, is_v4);
    put_address(ret_question->request.id.idiag_dst, &target, is_v4);
    return true;
}

/* The kernel's answers to earlier questions are skipped; it answers before send() returns. */
static bool read_answer(struct visitors *visitors, struct inet_diag_msg *ret_answer)
{
    union {
        struct nlmsghdr head;
        char bytes[4096];
    } message;
    for (;;) {
        struct sockaddr_nl from = {0};
        socklen_t length = sizeof(from);
        ssize_t count =
            recvfrom(visitors->diagnoser, &message, sizeof(message), MSG_DONTWAIT, (struct sockaddr *)&from, &length);
        if (count < 0 && errno == EINTR)
            continue;
        if (count < (ssize_t)NLMSG_LENGTH(0))
            return false;
        if (from.nl_pid != 0 || message.head.nlmsg_seq != visitors->asked)
            continue;
        if (message.head.nlmsg_type != SOCK_DIAG_BY_FAMILY || count < (ssize_t)NLMSG_LENGTH(sizeof(*ret_answer)))
            return false;
        memcpy(ret_answer, NLMSG_DATA(&message.head), sizeof(*ret_answer));
        return true;
    }
}

/* A socket that nobody has open any more has no inode, and root as its owner. If the client has gone, the kernel may
 * return a listener on its port, which has no other end. */
static bool is_the_clients(const struct inet_diag_msg *answer, const struct question *question)
{
    /* guard: whose socket is closed is unknown */
    /* guard: a listener at the port of a client is not the client */
    return answer->idiag_inode != 0 && answer->id.idiag_sport == question->request.id.idiag_sport &&
           answer->id.idiag_dport == question->request.id.idiag_dport;
}

static bool user_of_tcp(struct visitors *visitors, int fd, uid_t *ret_user)
{
    struct question question;
    struct inet_diag_msg answer;
    if (!make_question(visitors, fd, &question) ||
        send(visitors->diagnoser, &question, sizeof(question), 0) != (ssize_t)sizeof(question) ||
        !read_answer(visitors, &answer) || !is_the_clients(&answer, &question))
        return false;
    *ret_user = answer.idiag_uid;
    return true;
}

/* ---- both ---- */

bool visitors_user(struct visitors *visitors, int fd, uid_t *ret_user)
{
    int domain = AF_UNSPEC;
    socklen_t length = sizeof(domain), other_length = sizeof(struct ucred);
    struct ucred other;
    if (getsockopt(fd, SOL_SOCKET, SO_DOMAIN, &domain, &length) != 0)
        return false;
    if (domain != AF_UNIX)
        return user_of_tcp(visitors, fd, ret_user);
    if (getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &other, &other_length) != 0 || other.uid == (uid_t)-1)
        return false;
    *ret_user = other.uid;
    return true;
}
