// Debian: libpostgresql-jdbc-java. java -cp /usr/share/java/postgresql.jar Enqueue.java URL
// URL: jdbc:postgresql://HOST:PORT/issuing?user=orders&password=...
import java.sql.Connection;
import java.sql.DriverManager;
import java.sql.SQLException;

public class Enqueue {
    static void take(Connection db, String number, String customer, long amount, String currency) throws SQLException {
        db.setAutoCommit(false);
        try (var order = db.prepareStatement("INSERT INTO orders.orders (number, customer, amount, currency, charge_id)"
                + " SELECT o.number, o.customer, o.amount, o.currency, issuing.enqueue('PAYMENT_CHARGE', o.customer,"
                + " jsonb_build_object('order', o.number, 'amount', o.amount, 'currency', o.currency))"
                + " FROM (VALUES (?, ?, ?, ?)) o (number, customer, amount, currency)")) {
            order.setString(1, number);
            order.setString(2, customer);
            order.setLong(3, amount);
            order.setString(4, currency);
            order.executeUpdate();
            db.commit();
        } catch (SQLException error) {
            db.rollback();
            throw error;
        }
    }

    public static void main(String[] arguments) throws SQLException {
        try (Connection db = DriverManager.getConnection(arguments[0])) {
            take(db, "A-1005", "alice", 1999, "EUR");
        }
    }
}
