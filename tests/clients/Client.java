import java.sql.*;
import java.util.*;

/** What a BI tool does through pgJDBC: metadata calls, statements, parameters, fetch sizes, errors. */
public class Client {
    public static void main(String[] arguments) throws Exception {
        Connection c = DriverManager.getConnection(arguments[0], arguments[1], arguments[2]);
        DatabaseMetaData m = c.getMetaData();
        System.out.println("tables " + column(m.getTables(null, "public", "%", new String[] {"TABLE"}), "TABLE_NAME"));
        System.out.println("columns " + column(m.getColumns(null, "public", "cps1988", "%"), "COLUMN_NAME"));
        System.out.println("types " + column(m.getColumns(null, "public", "cps1988", "%"), "TYPE_NAME"));
        System.out.println("schemas " + column(m.getSchemas(), "TABLE_SCHEM"));
        System.out.println("catalogs " + column(m.getCatalogs(), "TABLE_CAT"));
        System.out.println("keys " + column(m.getPrimaryKeys(null, "public", "cps1988"), "COLUMN_NAME")
            + column(m.getIndexInfo(null, "public", "cps1988", false, false), "INDEX_NAME")
            + column(m.getImportedKeys(null, "public", "cps1988"), "FKCOLUMN_NAME"));
        System.out.println("privileges " + !column(m.getTablePrivileges(null, "public", "cps1988"), "PRIVILEGE").isEmpty());
        String regions = "SELECT region, COUNT(*) AS n FROM cps1988 GROUP BY region ORDER BY region WITH UTILITY (500, 0.05)";
        Statement s = c.createStatement();
        System.out.println("rows " + column(s.executeQuery(regions), "region"));
        System.out.println("warning " + (s.getWarnings() != null && s.getWarnings().getMessage().contains("privacy: ")));
        PreparedStatement p = c.prepareStatement(
            "SELECT COUNT(*) AS n, SUM(wage) AS w FROM cps1988 WHERE education >= ? AND region = ? WITH UTILITY (900, 0.05), w (900000, 0.05)");
        ResultSetMetaData d = p.getMetaData();
        System.out.println("described " + d.getColumnTypeName(1) + " " + d.getColumnTypeName(2));
        long first = 0;
        for (int i = 0; i < 8; i++) {  // from the fifth on, a named statement and binary
            p.setInt(1, 12);
            p.setString(2, "west");
            ResultSet r = p.executeQuery();
            r.next();
            if (i == 0) first = r.getLong(1);
            if (first != r.getLong(1)) throw new Exception("another answer");
            r.getDouble(2);
        }
        System.out.println("prepared " + (first > 0));
        c.setAutoCommit(false);
        Statement f = c.createStatement();
        f.setFetchSize(3);
        System.out.println("fetched " + column(f.executeQuery(regions), "region"));
        try {
            f.executeQuery("SELECT * FROM cps1988");
        } catch (SQLException e) {
            System.out.println("refused " + e.getSQLState());
        }
        c.rollback();
        f.setMaxRows(2);
        System.out.println("max " + column(f.executeQuery(regions), "region"));
        c.commit();
        System.out.println("valid " + c.isValid(5));
        c.close();
    }

    static List<String> column(ResultSet rows, String name) throws SQLException {
        List<String> values = new ArrayList<>();
        while (rows.next()) values.add(rows.getString(name));
        return values;
    }
}
