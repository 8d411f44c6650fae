// The bookshop's data, for all agents in this folder.
const shelf = { Dune: 3, Emma: 0, Walden: 7, Beloved: 2, Candide: 5, Hamlet: 1 };

export const prompt = "You work in a bookshop. Use the tools.";
export function stock({ title }) {
  if (!(title in shelf)) throw new Error(`there is no book ${title}`);
  return `${shelf[title]} copies`;
}
export const order = ({ title, copies }) => `ordered ${copies} of ${title}`;
