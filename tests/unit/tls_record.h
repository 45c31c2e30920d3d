/* Records of TLS 1.3 that OpenSSL never sends: its peer's secret is taken from it, and the record is made by hand. */
#ifndef ISSUING_TEST_TLS_RECORD_H
#define ISSUING_TEST_TLS_RECORD_H

#include <openssl/ssl.h>

#define TLS_RECORD_EMPTY_SIZE 22 /* a header of 5, the type, a tag of 16 */

/* Before the handshakes. What is made later is for the connection that shook hands last. */
void tls_record_watch(SSL_CTX *tls);
/* The next record of application data, without any data. OpenSSL can send nothing after it. */
void tls_record_make_empty(unsigned char ret_record[TLS_RECORD_EMPTY_SIZE]);

#endif
